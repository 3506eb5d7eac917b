//! Quotas of spaces and of members.

use crate::quotas::{self, StoredQuota};
use crate::{Catalog, Durability, Error};
use potluck_core::quota::{Quota, QuotaOf};

impl Catalog {
    /// Sets a quota; no limits take it away.
    pub async fn set_quota(&self, of: QuotaOf, quota: Quota) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| quotas::set(db, &of, quota)).await
    }

    /// Returns a quota; no limits where there is none.
    pub async fn quota(&self, of: QuotaOf) -> Result<Quota, Error> {
        self.read(move |db| quotas::get(db, &of)).await
    }

    /// All quotas, spaces first.
    pub async fn quotas(&self) -> Result<Vec<StoredQuota>, Error> {
        self.read(quotas::all).await
    }
}
