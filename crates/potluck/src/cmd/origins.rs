//! The way of a command's client to the origins of cached files.

use crate::command_settings::CommandSettings;
use potluck_client::Pool;
use potluck_origin::{AllowedHosts, OriginsOnDemand};
use std::sync::Arc;

/// The most requests at once to each host for chunks that no donor has.
const CONNECTIONS: usize = 8;

/// Returns this client with a way to the origins of cached files. Somebody else may have written down where they are, so
/// hosts of private networks are asked only as far as this user's settings allow.
pub fn reached(client: &Pool, settings: &CommandSettings) -> Pool {
    let allowed = AllowedHosts::new(settings.origins_allow.iter().cloned());
    client.with_origins(Arc::new(OriginsOnDemand::new(allowed, CONNECTIONS)))
}
