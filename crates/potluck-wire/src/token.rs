//! The text of a join token, which the manager's `calls/membership` makes and the catalog's `tokens` uses up. It is
//! `pot1.` and base64url of what a joiner must know before it sends anything: where the manager is, which CA it must
//! prove, and a single-use secret for one role.

use crate::addresses::Addresses;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use potluck_core::chunk::Digest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "pot1.";

/// The role of a member, which says what it may do in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A donor lends disk. It may report to the manager, locate other donors, announce its absence, give its space
    /// back, invite donors and leave; it has no rights in spaces.
    Donor,
    /// A user works in spaces, as far as it has rights there, and may make spaces.
    User,
    /// A gateway serves programs that do not know Potluck, such as S3 tools. It has no rights of its own: what it does
    /// it does on behalf of a user, by an access key that the user made.
    Gateway,
    /// An admin does what a user may, has all rights in every space, and manages members, groups, donors and repair.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Donor => "donor",
            Self::User => "user",
            Self::Gateway => "gateway",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "donor" => Ok(Self::Donor),
            "user" => Ok(Self::User),
            "gateway" => Ok(Self::Gateway),
            "admin" => Ok(Self::Admin),
            _ => Err(format!("unknown role “{text}”: use donor, user, gateway or admin")),
        }
    }
}

/// A join token. [`fmt::Display`] shows it whole, secret included; [`fmt::Debug`] does not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// The addresses at which the manager is reached.
    #[serde(rename = "m")]
    pub manager: Addresses,
    /// The BLAKE3 hash of the pool CA's certificate in DER.
    #[serde(rename = "c")]
    pub ca: Digest,
    /// The pool, by the fingerprint of its first CA, where that is another.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Digest>,
    /// The role that the token gives.
    #[serde(rename = "r")]
    pub role: Role,
    /// The secret of the token, of which the manager knows only the hash.
    #[serde(rename = "s")]
    pub secret: Digest,
}

impl JoinToken {
    /// Returns the pool that the token is of, by the fingerprint of its first CA.
    pub fn pool(&self) -> Digest {
        self.pool.unwrap_or(self.ca)
    }
}

/// The error for text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a whole Potluck join token: it begins with “{PREFIX}”, and is one long word")]
pub struct NotAToken;

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({} at {})", self.role, self.manager)
    }
}

impl FromStr for JoinToken {
    type Err = NotAToken;
    fn from_str(text: &str) -> Result<Self, NotAToken> {
        // People copy the whole line that `potluck invite` prints.
        let body = text.split_whitespace().find_map(|word| word.strip_prefix(PREFIX));
        let body = body.ok_or(NotAToken)?;
        let json = URL_SAFE_NO_PAD.decode(body).map_err(|_| NotAToken)?;
        serde_json::from_slice(&json).map_err(|_| NotAToken)
    }
}
