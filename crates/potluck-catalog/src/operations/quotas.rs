//! Quotas of spaces and of members.

use crate::quotas::{self, StoredQuota};
use crate::{Catalog, Durability, Error};
use potluck_core::quota::{Quota, QuotaOf};

impl Catalog {
    /// Sets a quota; no limits take it away.
    pub async fn set_quota(&self, of: QuotaOf, quota: Quota) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| quotas::set(db, &of, quota)).await
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
