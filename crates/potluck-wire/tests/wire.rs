//! Tests the wire through its public interface: bytes from enemies, and certificates.

#[path = "wire/hostile.rs"]
mod hostile;
#[path = "wire/tls.rs"]
mod tls;
