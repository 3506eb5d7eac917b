//! Decides who may do what: the calls that a role may make, and the rights of a member in a space.
//!
//! Every call that names a space or a path asks [`Access`] for the right that it needs there. A member without any
//! right in a space gets the same answer as for a space that does not exist.

use crate::callers::CallingMember;
use crate::calls::Verb;
use crate::handles::handles;
use potluck_catalog::{Catalog, Error, SeenSpaces};
use potluck_core::path::PoolPath;
use potluck_core::rights::{Right, Rights};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;

handles! {
    /// The handles for deciding what members may do in spaces.
    pub struct Access {
        catalog: Catalog,
    }
}

impl Access {
    /// Returns the rights of a caller in the space called `space`. Admins have all rights in every space, donors and
    /// gateways none; by an access key nobody has more than that allows.
    pub async fn rights(&self, caller: &CallingMember, space: &str) -> Result<Rights, Failure> {
        let who = caller.member()?;
        let granted = match who.role {
            Role::Admin => Rights::ALL,
            Role::User => self.catalog.rights(who.member, Some(space.into())).await?.rights(space),
            Role::Donor | Role::Gateway => Rights::NONE,
        };
        Ok(caller.key.as_ref().map_or(granted, |key| key.rights(space, granted)))
    }

    /// Returns the rights of a caller in a space, and refuses a caller that they do not allow `right`.
    pub async fn need_in(
        &self,
        caller: &CallingMember,
        right: Right,
        space: &str,
    ) -> Result<Rights, Failure> {
        let rights = self.rights(caller, space).await?;
        if rights.allow(right) {
            return Ok(rights);
        }
        if !rights.allow(Right::List) {
            return Err(Error::NoSpaceNamed(space.into()).into());
        }
        let what =
            format!("this needs the right to {right} in the space {space}, which you do not have");
        Err(Failure::new(ErrorKind::Auth, code::NO_RIGHT, what).hint(format!(
            "`potluck space who {space}` shows who manages it; they grant it with `potluck space grant`"
        )))
    }

    /// Returns the rights of a caller in the space of `path`, and refuses a caller that they do not allow `right`. The
    /// root of the pool is in no space and needs no right; only the spaces of [`Self::seen`] are shown there.
    pub async fn need(
        &self,
        caller: &CallingMember,
        right: Right,
        path: &PoolPath,
    ) -> Result<Rights, Failure> {
        match path.space() {
            "" => Ok(Rights::NONE),
            space => self.need_in(caller, right, space).await,
        }
    }

    /// Returns the rights as [`Self::need`] does, but refuses the root of the pool, for calls that work only in spaces.
    pub async fn need_in_a_space(
        &self,
        caller: &CallingMember,
        right: Right,
        path: &PoolPath,
    ) -> Result<Rights, Failure> {
        if path.space().is_empty() {
            let what = "this is done in a space, and the path names none";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("name one: `potluck space ls` lists those that you may see"));
        }
        self.need(caller, right, path).await
    }

    /// Returns the spaces that are shown to a caller who asks about the whole pool.
    pub async fn seen(&self, caller: &CallingMember) -> Result<SeenSpaces, Failure> {
        let who = caller.member()?;
        let granted = match who.role {
            Role::Admin => SeenSpaces::ALL,
            _ => self.catalog.rights(who.member, None).await?,
        };
        Ok(match &caller.key {
            Some(key) => key.seen(granted),
            None => granted,
        })
    }

    /// Returns the spaces that are shown to a caller who asks about `path`: for the pool's root those of
    /// [`Self::seen`], for another path its own space, which the caller must have the right to list.
    pub async fn seen_at(
        &self,
        caller: &CallingMember,
        path: &PoolPath,
    ) -> Result<SeenSpaces, Failure> {
        if path.space().is_empty() {
            return self.seen(caller).await;
        }
        let rights = self.need(caller, Right::List, path).await?;
        Ok(SeenSpaces::only([(path.space().to_owned(), rights)].into()))
    }
}

/// Refuses a call that its caller may not make. Join is allowed to everybody, also without a membership.
pub fn check(caller: &CallingMember, verb: Verb) -> Result<(), Failure> {
    if verb == Verb::Join {
        return Ok(());
    }
    let who = caller.member()?;
    if verb.by().include(who.role) {
        return Ok(());
    }
    let needed = [Role::User, Role::Admin, Role::Donor, Role::Gateway]
        .into_iter()
        .find(|role| verb.by().include(*role));
    let needed = needed.map_or("nobody", article);
    let what = format!(
        "{} is for {needed}, and this is the identity of {}",
        verb.what(),
        article(who.role)
    );
    Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
        .hint(format!("use the identity of {needed}")))
}

fn article(role: Role) -> &'static str {
    match role {
        Role::Admin => "an admin",
        Role::User => "a user",
        Role::Gateway => "a gateway",
        Role::Donor => "a donor",
    }
}
