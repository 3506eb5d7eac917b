//! Versions of the wire, one line each; a pool runs mixed versions one minor apart (promise U1).

/// The product's version, as every role announces it.
pub const PRODUCT: &str = env!("CARGO_PKG_VERSION");

/// The bulk protocol named in the HTTP `Upgrade` header.
///
/// - `potluck-bulk/1` (0.1): put, get. (0.2): kinds of chunks, routes and forwarded puts, which are
///   sent only to who needs them: a donor of 0.1 ends the connection.
pub const BULK: &str = "potluck-bulk/1";

/// The prefix of every control path.
///
/// - `/v1` (0.1): first release.
pub const CONTROL: &str = "/v1";
