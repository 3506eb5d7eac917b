//! Connecting to a pool under an identity of this machine.

use crate::pool::Pool;
use crate::retry_limits::RetryLimits;
use potluck_config::own_pools::{guided, load_identity};
use potluck_config::user_settings::UserSettings;
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use potluck_wire::tls;
use std::path::Path;

/// The environment variable that names the pool where a program does not.
pub const POOL_VARIABLE: &str = "POTLUCK_POOL";

impl Pool {
    /// Makes a client that acts as the user who runs this program, as the command line does: in the pool that is named
    /// `pool`, or by the environment ([`POOL_VARIABLE`]), or in that of the configuration, or in the only one that the user
    /// joined. `pool` may also be the path of an identity's directory. The manager is not called yet.
    ///
    /// Errors: [`code::NOT_A_MEMBER`](potluck_wire::error::code::NOT_A_MEMBER) without a usable identity,
    /// [`code::BAD_REQUEST`](potluck_wire::error::code::BAD_REQUEST) where several pools may be meant,
    /// [`code::BAD_SETTINGS`](potluck_wire::error::code::BAD_SETTINGS) for a configuration with a mistake.
    pub fn connect(pool: Option<&str>) -> Result<Self, Failure> {
        let named = pool.map(str::to_owned).or_else(|| std::env::var(POOL_VARIABLE).ok());
        let user = UserSettings::resolve(named.as_deref())?;
        Self::of_member(&user.identity_dir()?, RetryLimits::asked(user.retry_for()))
    }

    /// Makes a client that acts under the identity in `identity_dir`, and follows its manager when that moves.
    ///
    /// Errors: [`code::NOT_A_MEMBER`](potluck_wire::error::code::NOT_A_MEMBER) where the identity cannot be used.
    pub fn of_member(identity_dir: &Path, retry_limits: RetryLimits) -> Result<Self, Failure> {
        tls::install_provider();
        let caller = guided(&load_identity(identity_dir)?, identity_dir)?;
        Ok(Self::new(Env::system(), caller).with_retry_limits(retry_limits))
    }
}
