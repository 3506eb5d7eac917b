//! Quotas of spaces and of members.

use crate::members::quotas::{self, StoredQuota};
use crate::{Catalog, Durability, Error};
use potluck_core::quota::{Quota, QuotaChange, QuotaOf};

impl Catalog {
    /// Changes a quota and gives what it is now; no limits take it away.
    pub async fn set_quota(
        &self,
        of: QuotaOf,
        change: impl Into<QuotaChange>,
    ) -> Result<Quota, Error> {
        let change = change.into();
        self.write(Durability::Disk, move |db| quotas::set(db, &of, change)).await
    }

    /// The quotas that there are, spaces first; of one space or member alone where it is named.
    pub async fn quotas(&self, of: Option<QuotaOf>) -> Result<Vec<StoredQuota>, Error> {
        let named = move |db: &_| {
            let mut quotas = quotas::all(db)?;
            quotas.retain(|quota| of.as_ref().is_none_or(|of| quota.of == *of));
            Ok(quotas)
        };
        self.read(named).await
    }
}
