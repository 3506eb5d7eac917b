//! Extended attributes: the facts that the pool knows of an entry, its policy, and requests about it.

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
    /// The number of copies that a file has by its policy, or that new files below a directory get.
    Copies,
    /// The erasure code of a file, or of new files below a directory, if that is used instead of copies.
    Ec,
    /// The ack level of writes at the entry.
    Ack,
    /// The policy on which replaced versions of files are kept.
    Retain,
    /// The donors of a file, a line each.
    Placement,
    /// The bytes that are left of reservations for files at the entry. Setting the attribute reserves so many bytes for
    /// a limited time, or none for 0.
    Reserve,
    /// The rate in MiB/s at which a file was written through this mount, until it was closed.
    ObservedBandwidth,
    /// The rate in MiB/s at which a file was written through this mount, until all its copies were made.
    AchievedBandwidth,
    /// The share of a file that the pool had already when it was written, from 0 to 1.
    HeldShare,
    /// The checkpoint that a directory is staged for. Setting the attribute begins, joins, commits or aborts one.
    Checkpoint,
    /// The reason why the last commit of a directory's checkpoint was refused, if other mounts had files open.
    CheckpointRefusal,
    /// The attribute is 1 if several mounts may write a file at once. Setting it to 1 makes the file shared, and 0 ends
    /// that.
    Shared,
}

impl PoolAttribute {
    /// Returns the attribute that has a name.
    ///
    /// Errors: [`Errno::NODATA`] for other names that begin with `user.`; [`Errno::OPNOTSUPP`] for all others, such as
    /// those of access control lists. Programs ask for these often, so they must cost no call to the manager.
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
            Some("ckpt-refusal") => Ok(Self::CheckpointRefusal),
            Some("shared") => Ok(Self::Shared),
            _ if name.starts_with("user.") => Err(Errno::NODATA),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Returns the change of policy that sets the attribute to a value.
    ///
    /// Errors: [`Errno::PERM`] for an attribute that is no policy, [`Errno::INVAL`] for a value that the attribute
    /// cannot have.
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
            | Self::CheckpointRefusal
            | Self::Shared => return Err(Errno::PERM),
        }
        Ok(over)
    }

    /// Returns the value of the attribute, if the entry has one and the manager told it.
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
            // The mount knows these itself, or asks for them by other calls.
            Self::ObservedBandwidth
            | Self::AchievedBandwidth
            | Self::HeldShare
            | Self::Reserve
            | Self::Checkpoint
            | Self::CheckpointRefusal
            | Self::Shared => None,
        }
    }

    /// Returns the value of an attribute that tells how a file was written: `None` for any other attribute, and
    /// `Some(None)` if the value is not known.
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

/// Lists the donors that hold chunks of a file, one a line: number of chunks, stored bytes, state and name of the
/// donor.
fn placement(stated: &Stated) -> String {
    let line = |share: &potluck_wire::control::Share| {
        format!("{} {} {} {}", share.chunks, share.bytes, share.state.word(), share.name)
    };
    stated.donors.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl FileSystem {
    /// Returns the value of an extended attribute to a thread.
    pub async fn pool_attribute(
        &self,
        inode: u64,
        attribute: PoolAttribute,
        thread: u32,
    ) -> Result<String, Errno> {
        self.closed_are_published().await;
        if attribute == PoolAttribute::Checkpoint {
            return self.checkpoint_of(inode);
        }
        if attribute == PoolAttribute::CheckpointRefusal {
            return self.refusal_of(inode);
        }
        if attribute == PoolAttribute::Shared {
            let is_shared = self.is_shared(inode, thread).await?;
            return is_shared.then(|| "1".to_owned()).ok_or(Errno::NODATA);
        }
        let path = self.meant_path(inode, thread)?;
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
        let stated = match attribute {
            PoolAttribute::Placement => self.pool.stat(&path).await,
            _ => self.pool.stat_unjudged(&path).await,
        };
        match stated {
            Ok(stated) => attribute.of(&stated).ok_or(Errno::NODATA),
            // The file is being written, and has no published version yet.
            Err(failure) if failure.code == code::NO_ENTRY => Err(Errno::NODATA),
            Err(failure) => Err(errno(&failure)),
        }
    }

    /// Sets an extended attribute for a thread: changes a policy, as `potluck policy set` does (for a file, its
    /// redundancy), or makes a request about a checkpoint, a reservation or sharing.
    pub async fn set_pool_attribute(
        &self,
        inode: u64,
        attribute: PoolAttribute,
        value: &str,
        thread: u32,
    ) -> Result<(), Errno> {
        self.closed_are_published().await;
        if attribute == PoolAttribute::Checkpoint {
            return self.change_checkpoint(inode, value.parse()?).await;
        }
        if attribute == PoolAttribute::Reserve {
            let reserved = self.reserve(inode, value).await;
            self.capacities_changed();
            return reserved;
        }
        if attribute == PoolAttribute::Shared {
            return self.set_shared(inode, value, thread).await;
        }
        let policy = attribute.policy(value)?;
        let path = self.meant_path(inode, thread)?;
        let set = PolicySet { path, policy, new_files_only: false, dry_run: false };
        let set = self.pool.call(&set).await;
        self.small_files.begin_anew(); // new files begin in sessions with the new policy
        self.capacities_changed();
        set.map(drop).map_err(|failure| errno(&failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xattr_names_are_limited_to_the_pool() {
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
