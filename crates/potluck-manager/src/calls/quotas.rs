//! Answers the calls that set and list quotas.

use super::Answer;
use crate::access::Access;
use crate::audit_log::Auditor;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use potluck_catalog::Catalog;
use potluck_core::path::PoolPath;
use potluck_core::quota::{Quota, QuotaOf};
use potluck_core::rights::Right;
use potluck_core::size::format_size;
use potluck_wire::control::{Call, Done, QuotaList, QuotaSet, QuotaUse, Quotas};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::sync::Arc;

handles! {
    /// The handles for answering calls about quotas.
    pub struct QuotaCalls {
        catalog: Catalog,
        members: Arc<KnownMembers>,
        access: Access,
        auditor: Auditor,
    }
}

impl Answer<QuotaSet> for QuotaCalls {
    async fn answer(self, call: QuotaSet, caller: CallingMember) -> Result<Done, Failure> {
        let of = self.meant(&call.of)?;
        let quota = self.catalog.set_quota(of, call.change).await?;
        let what = format!("set the quota of {}: {}", call.of, in_words(quota));
        self.auditor.changed(&caller, QuotaSet::NAME, what).await;
        Ok(Done {})
    }
}

impl Answer<QuotaList> for QuotaCalls {
    async fn answer(self, _call: QuotaList, caller: CallingMember) -> Result<Quotas, Failure> {
        let who = caller.member()?;
        let seen = self.access.seen(&caller).await?;
        let mut quotas = Vec::new();
        for stored in self.catalog.quotas(None).await? {
            let (is_shown, name) = match &stored.of {
                QuotaOf::Space(space) => (seen.rights(space).allow(Right::List), None),
                QuotaOf::Member(member) => {
                    let is_own = who.role == Role::Admin || *member == who.member;
                    (is_own, self.members.names(&[*member]).pop())
                }
            };
            if is_shown {
                quotas.push(QuotaUse { name, ..stored.shown() });
            }
        }
        Ok(Quotas { quotas })
    }
}

impl QuotaCalls {
    /// Finds the space or the member that a person means by `of`: a space by its path, a member by name or number.
    fn meant(&self, of: &str) -> Result<QuotaOf, Failure> {
        if !PoolPath::is_pool_path(of) {
            return Ok(QuotaOf::Member(self.members.named(of)?));
        }
        let path = of.parse::<PoolPath>().map_err(|why| crate::failure::of_path(&why))?;
        if path.space().is_empty() || !path.names().is_empty() {
            let what = format!("{of} is no space: a quota is of a space or a user");
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("name a space, as pot://lab, or a user"));
        }
        Ok(QuotaOf::Space(path.space().into()))
    }
}

fn in_words(quota: Quota) -> String {
    let any = || "any".to_owned();
    format!(
        "{} bytes, {} files",
        quota.bytes.map_or_else(any, format_size),
        quota.files.map_or_else(any, |files| files.to_string())
    )
}
