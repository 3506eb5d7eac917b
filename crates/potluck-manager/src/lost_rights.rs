//! Ends the write sessions that members have open when their right to write is taken from them.

use crate::callers::KnownMembers;
use crate::handles::handles;
use crate::sessions::WriteSessions;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::rights::Right;
use potluck_wire::token::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

handles! {
    /// The handles for ending the sessions of members who lost their rights.
    pub struct LostRights {
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        sessions: WriteSessions,
    }
}

impl LostRights {
    /// Ends the write sessions of users who may not write any more to the space that they write to. Admins
    /// may write everywhere.
    pub async fn end_sessions(&self) -> Result<(), Error> {
        let writers = self.pool.lock().writers();
        let users = self.members.all().into_iter().filter(|member| member.role == Role::User);
        let users: BTreeSet<_> = users.map(|member| member.id).collect();
        let mut known = BTreeMap::new();
        for (session, member, space) in writers {
            if !users.contains(&member) {
                continue;
            }
            let may = match known.get(&(member, space)) {
                Some(may) => *may,
                None => self.may_write(member, space).await?,
            };
            known.insert((member, space), may);
            if !may {
                self.sessions.cut_off(session).await?;
            }
        }
        Ok(())
    }

    async fn may_write(&self, member: MemberId, space: SpaceId) -> Result<bool, Error> {
        match self.catalog.space(space).await? {
            Some(space) => {
                let rights = self.catalog.rights(member, Some(space.name.clone())).await?;
                Ok(rights.rights(&space.name).allow(Right::Write))
            }
            None => Ok(true), // it was removed, and commits to it are refused for that
        }
    }
}
