//! What crosses a socket, seen from outside: released shapes, and bytes from enemies.

#[path = "wire/golden.rs"]
mod golden;
#[path = "wire/hostile.rs"]
mod hostile;
#[path = "wire/tls.rs"]
mod tls;
