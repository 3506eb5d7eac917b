//! What crosses a socket, seen from outside: bytes from enemies.

#[path = "wire/hostile.rs"]
mod hostile;
#[path = "wire/tls.rs"]
mod tls;
