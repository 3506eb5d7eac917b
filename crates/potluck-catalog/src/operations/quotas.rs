//! Quotas of spaces and of members.

use crate::members::quotas::{self, StoredQuota};
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
        self.write(Durability::Disk, move |db| quotas::set(db, &of, change)).await
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
