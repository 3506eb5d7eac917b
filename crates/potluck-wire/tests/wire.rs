//! Tests bytes from enemies, as they cross a socket, seen from outside.

#[path = "wire/hostile.rs"]
mod hostile;
#[path = "wire/tls.rs"]
mod tls;
