//! Extended attributes: what the pool knows of an entry, and the policy that holds there.

use super::FileSystem;
use crate::errno::errno;
use crate::write_rates::WriteRates;
use potluck_core::policy::Override;
use potluck_wire::control::{EntryKind, PolicySet, Stated};
use potluck_wire::error::code;
use rustix::io::Errno;

/// The prefix of the name of every extended attribute of the pool.
const PREFIX: &str = "user.potluck.";

/// An extended attribute that the pool answers for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAttribute {
    /// The digest of a file, as `potluck hash` prints it.
    Digest,
    /// How many copies a file has by its policy, or new files below a directory get.
    Copies,
    /// The erasure code of a file, where it has one instead of copies.
    Ec,
    /// The ack level of what is written at the entry.
    Ack,
    /// Which versions of files are kept when others take their place.
    Retain,
    /// The donors of a file, a line each.
    Placement,
    /// The bytes that are reserved for what is written at the entry; setting it reserves so many for a day, or none.
    Reserve,
    /// How fast a file was written through this mount, until it was closed.
    ObservedBandwidth,
    /// How fast a file was written through this mount, until all its copies were made.
    AchievedBandwidth,
    /// How much of the file the pool had already.
    HeldShare,
    /// The checkpoint that a directory is staged for; to set it begins, joins, commits or aborts one.
    Checkpoint,
    /// Whether several mounts write a file at once; to set it to 1 has them share it, and 0 ends that.
    Shared,
}

impl PoolAttribute {
    /// Returns the attribute that has a name.
    ///
    /// Errors: [`Errno::NODATA`] for a name of users that the pool has nothing to say of, [`Errno::OPNOTSUPP`] for
    /// those of the system, such as access control lists: asked for at each look, they cost no call to the manager.
    pub fn named(name: &str) -> Result<Self, Errno> {
        match name.strip_prefix(PREFIX) {
            Some("digest") => Ok(Self::Digest),
            Some("copies") => Ok(Self::Copies),
            Some("ec") => Ok(Self::Ec),
            Some("ack") => Ok(Self::Ack),
            Some("retain") => Ok(Self::Retain),
            Some("placement") => Ok(Self::Placement),
            Some("reserve") => Ok(Self::Reserve),
            Some("oab") => Ok(Self::ObservedBandwidth),
            Some("asb") => Ok(Self::AchievedBandwidth),
            Some("held") => Ok(Self::HeldShare),
            Some("ckpt") => Ok(Self::Checkpoint),
            Some("shared") => Ok(Self::Shared),
            _ if name.starts_with("user.") => Err(Errno::NODATA),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Returns the policy that sets the attribute to a value.
    ///
    /// Errors: [`Errno::PERM`] for what follows from the content, [`Errno::INVAL`] for a value that it cannot have.
    fn policy(self, value: &str) -> Result<Override, Errno> {
        let value = value.trim_end_matches(['\n', '\0']);
        let mut over = Override::default();
        match self {
            Self::Copies => over.copies = Some(value.parse().map_err(|_| Errno::INVAL)?),
            Self::Ec => over.ec = Some(value.parse().map_err(|_| Errno::INVAL)?),
            Self::Ack => over.ack = Some(value.parse().map_err(|_| Errno::INVAL)?),
            Self::Retain => over.keep_versions = Some(value.parse().map_err(|_| Errno::INVAL)?),
            Self::Digest
            | Self::Placement
            | Self::ObservedBandwidth
            | Self::AchievedBandwidth
            | Self::HeldShare
            | Self::Reserve
            | Self::Checkpoint
            | Self::Shared => return Err(Errno::PERM),
        }
        Ok(over)
    }

    /// Returns the value of the attribute, if the entry has one.
    fn of(self, stated: &Stated) -> Option<String> {
        let Stated { entry, policy, .. } = stated;
        let is_file = entry.kind == EntryKind::File;
        let (copies, ec) = match is_file {
            true => (entry.copies, entry.ec),
            false => (Some(policy.copies), policy.ec),
        };
        match self {
            Self::Digest => entry.digest.map(|digest| digest.to_string()),
            Self::Copies => copies.filter(|_| ec.is_none()).map(|copies| copies.to_string()),
            Self::Ec => ec.map(|ec| ec.to_string()),
            Self::Ack => Some(policy.ack.to_string()),
            Self::Retain => Some(policy.keep_versions.to_string()),
            Self::Placement => is_file.then(|| placement(stated)),
            // The mount knows these, or asks for them in another way.
            Self::ObservedBandwidth
            | Self::AchievedBandwidth
            | Self::HeldShare
            | Self::Reserve
            | Self::Checkpoint
            | Self::Shared => None,
        }
    }

    /// Returns the value of the attribute, if it tells how a file was written.
    fn of_writing(self, rates: &WriteRates) -> Option<Option<String>> {
        let mib_s = |rate: f64| format!("{:.1}", rate / f64::from(1 << 20));
        match self {
            Self::ObservedBandwidth => Some(Some(mib_s(rates.observed))),
            Self::AchievedBandwidth => Some(rates.achieved.map(mib_s)),
            Self::HeldShare => Some(rates.held_share.map(|share| format!("{share:.3}"))),
            _ => None,
        }
    }
}

/// Lists who holds chunks of a file: how many, their stored bytes, the state of the donor, and its name.
fn placement(stated: &Stated) -> String {
    let line = |share: &potluck_wire::control::Share| {
        format!("{} {} {} {}", share.chunks, share.bytes, share.state.word(), share.name)
    };
    stated.donors.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl FileSystem {
    /// Returns the value of an extended attribute.
    pub async fn pool_attribute(
        &self,
        inode: u64,
        attribute: PoolAttribute,
    ) -> Result<String, Errno> {
        if attribute == PoolAttribute::Checkpoint {
            return self.checkpoint_of(inode);
        }
        if attribute == PoolAttribute::Shared {
            return self.is_shared(inode).await?.then(|| "1".to_owned()).ok_or(Errno::NODATA);
        }
        let path = self.inodes().path(inode)?;
        if attribute == PoolAttribute::Reserve {
            return self.reserved_at(&path).await;
        }
        if path.space().is_empty() {
            return Err(Errno::NODATA);
        }
        let rates = self.written_files.of(&path).unwrap_or_default();
        if let Some(value) = attribute.of_writing(&rates) {
            return value.filter(|_| rates != WriteRates::default()).ok_or(Errno::NODATA);
        }
        match self.pool.stat(&path).await {
            Ok(stated) => attribute.of(&stated).ok_or(Errno::NODATA),
            // The file is being written, and nothing of it was published yet.
            Err(failure) if failure.code == code::NO_ENTRY => Err(Errno::NODATA),
            Err(failure) => Err(errno(&failure)),
        }
    }

    /// Sets an extended attribute: the policy of a directory, as `potluck policy set` does, or of a file its
    /// redundancy.
    pub async fn set_pool_attribute(
        &self,
        inode: u64,
        attribute: PoolAttribute,
        value: &str,
    ) -> Result<(), Errno> {
        if attribute == PoolAttribute::Checkpoint {
            return self.change_checkpoint(inode, value.parse()?).await;
        }
        if attribute == PoolAttribute::Reserve {
            return self.reserve(inode, value).await;
        }
        if attribute == PoolAttribute::Shared {
            return self.set_shared(inode, value).await;
        }
        let policy = attribute.policy(value)?;
        let path = self.inodes().path(inode)?;
        let set = PolicySet { path, policy, new_files_only: false, dry_run: false };
        let set = self.pool.call(&set).await;
        self.small_files.begin_anew(); // in sessions with the new policy
        set.map(drop).map_err(|failure| errno(&failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_pool_are_answered_for_and_only_policies_are_set() {
        assert_eq!(PoolAttribute::named("user.potluck.ec"), Ok(PoolAttribute::Ec));
        assert_eq!(PoolAttribute::named("user.potluck.other"), Err(Errno::NODATA));
        assert_eq!(PoolAttribute::named("user.comment"), Err(Errno::NODATA));
        assert_eq!(PoolAttribute::named("security.capability"), Err(Errno::OPNOTSUPP));
        assert_eq!(PoolAttribute::named("system.posix_acl_access"), Err(Errno::OPNOTSUPP));
        let set = |attribute: PoolAttribute, value| attribute.policy(value);
        assert_eq!(set(PoolAttribute::Copies, "3\n").map(|over| over.copies), Ok(Some(3)));
        assert_eq!(set(PoolAttribute::Copies, "many"), Err(Errno::INVAL));
        assert_eq!(set(PoolAttribute::Ec, "2"), Err(Errno::INVAL));
        assert_eq!(set(PoolAttribute::Digest, "x"), Err(Errno::PERM));
        assert_eq!(set(PoolAttribute::ObservedBandwidth, "9"), Err(Errno::PERM));
    }
}
