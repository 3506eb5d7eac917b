//! A pool for tests, of which no manager is reached.

use potluck_client::Pool;
use potluck_wire::addresses::Addresses;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::net::{BoxFuture, BoxStream, SystemNet};
use potluck_wire::tls::Dial;
use std::io;
use std::sync::Arc;

struct NoManager;

impl Dial for NoManager {
    fn secure(&self, _: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// Returns the pool. Calls are tried for as long as its retry limits say.
pub fn pool() -> Pool {
    let caller = Caller::new(Arc::new(SystemNet), Arc::new(NoManager), Addresses::default());
    Pool::new(Env::system(), caller)
}
