//! Quotas of spaces and of members.

use crate::log::{apply, records::Record};
use crate::members::{
    self,
    quotas::{self, StoredQuota},
};
use crate::sql::Tx;
use crate::{Catalog, Durability, Error};
use potluck_core::quota::{Quota, QuotaChange, QuotaOf};

impl Catalog {
    /// Changes a quota, and returns what it is now. A quota without limits is removed.
    pub async fn set_quota(
        &self,
        of: QuotaOf,
        change: impl Into<QuotaChange>,
    ) -> Result<Quota, Error> {
        let change = change.into();
        self.write(Durability::Disk, move |db| set(db, &of, change)).await
    }

    /// Returns all quotas that bind anybody, those of spaces first, or only the quota of the space or member that is
    /// named.
    pub async fn quotas(&self, of: Option<QuotaOf>) -> Result<Vec<StoredQuota>, Error> {
        let named = move |db: &_| {
            let mut quotas = quotas::in_force(db)?;
            quotas.retain(|quota| of.as_ref().is_none_or(|of| quota.of == *of));
            Ok(quotas)
        };
        self.read(named).await
    }
}

/// Changes a quota, or removes it, and returns what it is now.
///
/// Errors: [`Error::NoMember`] for a member whose membership ended or never was, and [`Error::NoSpaceNamed`].
pub(crate) fn set(db: &Tx, of: &QuotaOf, change: QuotaChange) -> Result<Quota, Error> {
    if let QuotaOf::Member(id) = of
        && members::get(db, *id)?.is_none_or(|member| member.revoked)
    {
        return Err(Error::NoMember(id.0));
    }
    let quota = change.of(quotas::get(db, of)?);
    apply::write(db, Record::Quota { of: of.clone(), quota })?;
    Ok(quota)
}
