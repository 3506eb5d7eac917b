//! Answers the calls that make, list and end access keys, and that show one to a gateway.

use super::Answer;
use crate::access::Access;
use crate::access_keys::KnownAccessKeys;
use crate::audit_log::Auditor;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use potluck_catalog::{AccessKey, Catalog, KeyEnd};
use potluck_core::rights::Right;
use potluck_core::text::is_unseen;
use potluck_wire::control::{
    AccessKeyAbout, AccessKeyCreate, AccessKeyCreated, AccessKeyList, AccessKeyRemove,
    AccessKeyShow, AccessKeyShown, AccessKeys, Call, Done, MOST_KEY_SPACES,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for answering calls about access keys.
    pub struct AccessKeyCalls {
        env: Env,
        time: PoolTime,
        term: Arc<OwnTerm>,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        access_keys: Arc<KnownAccessKeys>,
        access: Access,
        auditor: Auditor,
    }
}

/// The longest life of a key, in seconds.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
/// The longest label of a key, in bytes.
const MAX_LABEL: usize = 255;
/// The letters of an identifier: as S3 tools expect them.
const ID_LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// The letters of a secret: none of them has to be quoted in a shell, in a URL or in a configuration file.
const SECRET_LETTERS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

impl AccessKeyCalls {
    /// Returns random letters, of which `letters` are a power of two, so that each is as likely as the others.
    fn drawn(&self, letters: &[u8], count: usize) -> String {
        let random = self.env.entropy.bytes::<64>();
        random
            .iter()
            .take(count)
            .map(|byte| letters[*byte as usize % letters.len()] as char)
            .collect()
    }

    fn about(&self, key: &AccessKey) -> AccessKeyAbout {
        let now = self.term.moment(&self.time);
        AccessKeyAbout {
            id: key.id.clone(),
            member: key.member,
            name: self.members.names(&[key.member]).pop().unwrap_or_default(),
            spaces: key.spaces.iter().cloned().collect(),
            rights: key.rights,
            unseals: key.unseals,
            label: key.label.clone(),
            made_wall_ms: key.made_wall_ms,
            left_seconds: key.end.left_ms(now).div_ceil(1000),
        }
    }
}

fn refused(what: impl Into<String>, hint: &str) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint)
}

impl Answer<AccessKeyCreate> for AccessKeyCalls {
    async fn answer(
        self,
        call: AccessKeyCreate,
        caller: CallingMember,
    ) -> Result<AccessKeyCreated, Failure> {
        let who = caller.member()?;
        let AccessKeyCreate { spaces, rights, ttl_seconds, unseals, label } = call;
        let spaces: BTreeSet<String> = spaces.into_iter().collect();
        if !(1..=MOST_KEY_SPACES).contains(&spaces.len()) {
            let what = format!("a key is for 1 to {MOST_KEY_SPACES} spaces, not {}", spaces.len());
            return Err(refused(what, "name them by --space"));
        }
        if !(1..=MAX_TTL_SECONDS).contains(&ttl_seconds) {
            let what = format!("a key lives 1 to {MAX_TTL_SECONDS} seconds, not {ttl_seconds}");
            return Err(refused(what, "choose another by --ttl"));
        }
        if label.len() > MAX_LABEL || label.contains(is_unseen) {
            let what = format!(
                "a key's label has at most {MAX_LABEL} bytes, and no characters that only steer a terminal"
            );
            return Err(refused(what, "choose another by --label"));
        }
        let reads_or_writes = rights.allow(Right::Read) || rights.allow(Right::Write);
        if !reads_or_writes || rights.allow(Right::Manage) {
            return Err(refused("a key is to read or to write", "say --read or --write"));
        }
        for right in rights.granted() {
            for space in &spaces {
                self.access.need_in(&caller, right, space).await?;
            }
        }
        let sealed = self.catalog.spaces().await?.into_iter().filter(|it| it.keys.is_some());
        let mut sealed = sealed.map(|it| it.name).filter(|name| spaces.contains(name));
        if let Some(name) = sealed.next().filter(|_| !unseals) {
            let what =
                format!("the space {name} is sealed, and a gateway needs its key to serve it");
            return Err(refused(
                what,
                "say --unseal to let gateways have it: their machines then see the content",
            ));
        }
        self.auditor.admit_change(&caller)?;
        let now = self.term.moment(&self.time);
        let key = AccessKey {
            id: format!("POT{}", self.drawn(ID_LETTERS, 17)),
            secret: self.drawn(SECRET_LETTERS, 40),
            member: who.member,
            spaces,
            rights,
            unseals,
            label,
            made_wall_ms: now.wall_ms,
            end: KeyEnd::after(ttl_seconds * 1000, now),
        };
        self.catalog.add_access_key(key.clone(), now).await?;
        self.access_keys.put(key.clone());
        let spaces: Vec<_> = key.spaces.iter().map(String::as_str).collect();
        let sealed = if unseals { ", sealed content too" } else { "" };
        let what = format!(
            "made the access key {} for gateways to {rights} in {}{sealed}",
            key.id,
            spaces.join(" ")
        );
        self.auditor.changed(&caller, AccessKeyCreate::NAME, what).await;
        Ok(AccessKeyCreated { id: key.id, secret: key.secret })
    }
}

impl Answer<AccessKeyList> for AccessKeyCalls {
    async fn answer(self, _: AccessKeyList, caller: CallingMember) -> Result<AccessKeys, Failure> {
        let who = caller.member()?;
        let live = self.access_keys.live(self.term.moment(&self.time));
        let shown = live.iter().filter(|key| who.role == Role::Admin || key.member == who.member);
        Ok(AccessKeys { keys: shown.map(|key| self.about(key)).collect() })
    }
}

impl Answer<AccessKeyRemove> for AccessKeyCalls {
    async fn answer(self, call: AccessKeyRemove, caller: CallingMember) -> Result<Done, Failure> {
        let who = caller.member()?;
        let live = self.access_keys.live(self.term.moment(&self.time));
        let is_meant = |key: &&Arc<AccessKey>| {
            key.id == call.id && (who.role == Role::Admin || key.member == who.member)
        };
        let Some(key) = live.iter().find(is_meant) else {
            let what = format!("you have no access key {}", call.id);
            return Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                .hint("`potluck key ls` lists them"));
        };
        self.auditor.admit_change(&caller)?;
        self.access_keys.forget(&key.id);
        self.catalog.remove_access_key(key.id.clone()).await?;
        let what = format!("ended the access key {}", key.id);
        self.auditor.changed(&caller, AccessKeyRemove::NAME, what).await;
        Ok(Done {})
    }
}

impl Answer<AccessKeyShow> for AccessKeyCalls {
    async fn answer(
        self,
        call: AccessKeyShow,
        _: CallingMember,
    ) -> Result<AccessKeyShown, Failure> {
        let now = self.term.moment(&self.time);
        let (key, _) = self.access_keys.find(&call.id, &self.members, now)?;
        Ok(AccessKeyShown { key: self.about(&key), secret: key.secret.clone() })
    }
}
