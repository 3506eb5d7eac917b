//! The file by which a daemon tells other programs that it serves, and at which address.

use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::write_private;
use std::net::SocketAddr;
use std::path::Path;

/// Writes `{"pid", "address"}` to `file`, if one is given; readers never see a part of it.
pub fn announce(file: Option<&Path>, address: SocketAddr) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::json!({ "pid": std::process::id(), "address": address });
    write_private(file, text.to_string().as_bytes()).map_err(|error| {
        let what = format!("cannot write {}: {error}", file.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
    })
}
