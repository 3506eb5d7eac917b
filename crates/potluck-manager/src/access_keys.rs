//! The access keys by which gateways act on behalf of users, kept equal to the catalog's.
//!
//! A call that a gateway makes by a key is judged as a call of the key's user: by the user's grants at that moment, and by
//! what the key allows of them. So a gateway that somebody took over can do what the live keys of its users allow, and
//! nothing else.

use crate::callers::{CallingMember, KnownMember, KnownMembers};
use crate::calls::Verb;
use potluck_catalog::{AccessKey, Moment, SeenSpaces};
use potluck_core::rights::Rights;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// All access keys, by their identifiers.
#[derive(Debug, Default)]
pub struct KnownAccessKeys(RwLock<HashMap<String, Arc<AccessKey>>>);

impl KnownAccessKeys {
    /// Makes a list of these keys.
    pub fn new(keys: Vec<AccessKey>) -> Self {
        let keys = keys.into_iter().map(|key| (key.id.clone(), Arc::new(key)));
        Self(RwLock::new(keys.collect()))
    }

    /// Adds a key that was made.
    pub fn put(&self, key: AccessKey) {
        self.0.write().expect("no holder panics").insert(key.id.clone(), Arc::new(key));
    }

    /// Takes a key off the list, which has ended.
    pub fn forget(&self, id: &str) {
        self.0.write().expect("no holder panics").remove(id);
    }

    /// Returns all keys, the oldest first, whose life has not ended.
    pub fn live(&self, now: Moment) -> Vec<Arc<AccessKey>> {
        let keys = self.0.read().expect("no holder panics");
        let mut keys: Vec<_> =
            keys.values().filter(|key| key.end.left_ms(now) > 0).cloned().collect();
        keys.sort_by(|a, b| (a.made_wall_ms, &a.id).cmp(&(b.made_wall_ms, &b.id)));
        keys
    }

    /// Returns a key whose life has not ended, and its user, whose membership has not ended either.
    ///
    /// Errors: [`code::BAD_KEY`], the same for a key that never was and for one that ended.
    pub fn find(
        &self,
        id: &str,
        members: &KnownMembers,
        now: Moment,
    ) -> Result<(Arc<AccessKey>, KnownMember), Failure> {
        let key = self.0.read().expect("no holder panics").get(id).cloned();
        let key = key.filter(|key| key.end.left_ms(now) > 0);
        let owned = key.and_then(|key| Some((members.numbered(key.member)?, key)));
        owned.map(|(owner, key)| (key, owner)).ok_or_else(|| {
            Failure::new(ErrorKind::Auth, code::BAD_KEY, "the access key is unknown, or has ended")
                .hint("`potluck key ls` shows your keys, `potluck key create` makes another")
        })
    }
}

/// An access key by which a call is made.
#[derive(Debug, Clone)]
pub struct ActingKey {
    /// The gateway that makes the call.
    pub gateway: KnownMember,
    /// True if the key's user is an admin, who has all rights in every space.
    owner_is_admin: bool,
    key: Arc<AccessKey>,
}

impl ActingKey {
    /// Makes `caller`, who is a gateway, a caller on behalf of the user of the key called `id`.
    ///
    /// Errors: [`code::NOT_ALLOWED`] for a caller that is no gateway and for calls that are not made by keys,
    /// [`code::BAD_KEY`].
    pub fn act(
        caller: &mut CallingMember,
        id: &str,
        verb: Verb,
        keys: &KnownAccessKeys,
        members: &KnownMembers,
        now: Moment,
    ) -> Result<(), Failure> {
        let gateway = caller.member()?.clone();
        if gateway.role != Role::Gateway {
            let what = format!("{} acts for itself, and by no access key", gateway.role);
            return Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("a gateway joins with a token from `potluck invite --role gateway`"));
        }
        let (key, owner) = keys.find(id, members, now)?;
        let owner_is_admin = owner.role == Role::Admin;
        // Nobody is an admin by a key: what admins alone may do is not done through gateways.
        caller.who = Some(KnownMember { role: Role::User, ..owner });
        caller.key = Some(Self { gateway, owner_is_admin, key });
        if verb.is_made_by_keys() {
            return Ok(());
        }
        let what = format!("{} is not done by an access key", verb.what());
        Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
            .hint("do it with `potluck`, as yourself"))
    }

    /// Returns the identifier of the key.
    pub fn id(&self) -> &str {
        &self.key.id
    }

    /// Returns the rights that the key allows in a space where its user was granted `granted`.
    pub fn rights(&self, space: &str, granted: Rights) -> Rights {
        if !self.key.spaces.contains(space) {
            return Rights::NONE;
        }
        let of_user = if self.owner_is_admin { Rights::ALL } else { granted };
        of_user.within(self.key.rights)
    }

    /// Returns the spaces that the key shows of those that its user may see.
    pub fn seen(&self, granted: SeenSpaces) -> SeenSpaces {
        let of_user = if self.owner_is_admin { SeenSpaces::ALL } else { granted };
        of_user.within(&self.key.spaces, self.key.rights)
    }

    /// Refuses to hand the key of a sealed space to the gateway, unless the user allowed it.
    ///
    /// Errors: [`code::BAD_KEY`].
    pub fn need_unsealing(&self) -> Result<(), Failure> {
        if self.key.unseals {
            return Ok(());
        }
        let what = "the space is sealed, and this access key does not let a gateway have its key";
        Err(Failure::new(ErrorKind::Auth, code::BAD_KEY, what)
            .hint("make another: `potluck key create --unseal`; the gateway's machine then sees the content"))
    }
}
