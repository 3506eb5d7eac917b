//! The versions of the wire, one line each. Until 1.0 all machines of a pool run one version; from then on, versions
//! that are one minor apart may be mixed (promise U1).

/// The product's version, as every role announces it.
pub const PRODUCT: &str = env!("CARGO_PKG_VERSION");

/// The bulk protocol named in the HTTP `Upgrade` header.
///
/// - `potluck-bulk/1`: put, get, kinds of chunks, routes and forwarded puts.
pub const BULK: &str = "potluck-bulk/1";

/// The prefix of every control path.
///
/// - `/v1`: all of 0.x.
pub const CONTROL: &str = "/v1";
