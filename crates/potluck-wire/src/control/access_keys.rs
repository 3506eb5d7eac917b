//! The calls about access keys, by which a gateway acts on behalf of a user.

use super::{Call, Callers, Done, call};
use potluck_core::ids::MemberId;
use potluck_core::rights::Rights;
use serde::{Deserialize, Serialize};

/// The most spaces that one key may name.
pub const MOST_KEY_SPACES: usize = 32;

/// Makes an access key of the caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccessKeyCreate {
    /// The names of the spaces in which the key can be used, at most [`MOST_KEY_SPACES`].
    pub spaces: Vec<String>,
    /// The most that the key allows. Each call is allowed no more than its user may do at that moment.
    pub rights: Rights,
    /// The time for which the key can be used, in seconds.
    pub ttl_seconds: u64,
    /// True if gateways may be given the keys of sealed spaces, which they need to serve these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseals: bool,
    /// A text by which the user knows the key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}
call!(AccessKeyCreate => AccessKeyCreated, "key-create", Users, "`potluck key`", once);

/// A new access key with its secret, which is shown to its user this once.
#[derive(Clone, Serialize, Deserialize)]
pub struct AccessKeyCreated {
    /// The identifier of the key, which is no secret: requests name it.
    pub id: String,
    /// The secret that requests are signed with.
    pub secret: String,
}

impl std::fmt::Debug for AccessKeyCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKeyCreated").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Lists the access keys of the caller; of an admin, those of all members.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccessKeyList {}
call!(AccessKeyList => AccessKeys, "keys", Users, "`potluck key`");

/// Access keys, without their secrets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AccessKeys {
    /// The keys, the oldest first.
    pub keys: Vec<AccessKeyAbout>,
}

/// An access key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKeyAbout {
    /// The identifier of the key.
    pub id: String,
    /// The user on whose behalf gateways act by the key.
    pub member: MemberId,
    /// The name that people call the user by.
    pub name: String,
    /// The spaces in which the key can be used.
    pub spaces: Vec<String>,
    /// The most that the key allows.
    pub rights: Rights,
    /// True if gateways may be given the keys of sealed spaces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseals: bool,
    /// The text by which the user knows the key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The wall time at which the key was made, in milliseconds.
    pub made_wall_ms: i64,
    /// The seconds until the key can be used no more.
    pub left_seconds: u64,
}

/// Ends an access key of the caller; an admin may end any.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccessKeyRemove {
    /// The identifier of the key.
    pub id: String,
}
call!(AccessKeyRemove => Done, "key-remove", Users, "`potluck key`", once);

/// Asks for the secret of a key that somebody named to a gateway, by which the gateway checks signatures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccessKeyShow {
    /// The identifier of the key.
    pub id: String,
}
call!(AccessKeyShow => AccessKeyShown, "key-show", Gateways, "`potluck serve`");

/// An access key as a gateway knows it.
#[derive(Clone, Serialize, Deserialize)]
pub struct AccessKeyShown {
    /// The key without its secret.
    pub key: AccessKeyAbout,
    /// The secret that requests are signed with.
    pub secret: String,
}

impl std::fmt::Debug for AccessKeyShown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKeyShown").field("key", &self.key).finish_non_exhaustive()
    }
}
