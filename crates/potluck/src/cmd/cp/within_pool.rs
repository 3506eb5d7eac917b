//! Copies files and trees inside the pool.

use super::archived;
use super::at_once::Destination;
use super::directories::Policies;
use super::outward::source_of;
use super::place::bad_path;
use super::{
    CopyPlace, CpReport, FailedFile, Landing, PlacedAt, StoredVersion, one_version,
    policy_override, target,
};
use crate::args::CpArgs;
use crate::progress_bar;
use potluck_client::{CopyReport, Pool, PutOptions, PutReport};
use potluck_core::path::PoolPath;
use potluck_core::policy::Override;
use potluck_wire::control::{EntryKind, NewLink, NotCopied, Stated};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The copies of one command to its target.
struct Copying<'a> {
    args: &'a CpArgs,
    client: Pool,
    to: &'a PoolPath,
    destination: &'a Destination,
    landing: Landing,
    over: Override,
}

pub async fn copy(
    args: &CpArgs,
    from: &[CopyPlace],
    (to, into): (&PoolPath, bool),
    destination: &Destination,
    client: &Pool,
    shown: bool,
) -> Result<CpReport, Failure> {
    let is_dir = client.kind(to).await? == Some(EntryKind::Dir);
    let landing = Landing { into, is_dir, several: from.len() > 1 };
    landing.check()?;
    let over = policy_override(&args.policy)?;
    let mut copying = Copying { args, client: client.clone(), to, destination, landing, over };
    let mut report = CpReport::default();
    for source in from {
        let PlacedAt::Pool(path) = &source.at else { continue };
        match copying.one(path, source.contents, shown, &mut report).await {
            Ok(()) => {}
            Err(failure) if from.len() == 1 => return Err(failure),
            Err(error) => report.failed.push(FailedFile { path: path.to_string(), error }),
        }
        copying.client = copying.client.under_way();
    }
    Ok(report)
}

impl Copying<'_> {
    async fn one(
        &self,
        from: &PoolPath,
        contents: bool,
        shown: bool,
        report: &mut CpReport,
    ) -> Result<(), Failure> {
        let named = from;
        let from = &source_of(self.args, from, &self.client).await?;
        let stated = self.client.stat_unjudged(from).await?;
        let is_dir = stated.entry.kind == EntryKind::Dir;
        if is_dir && !self.args.recursive {
            let what = format!("{from} is a directory");
            return Err(Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, what)
                .hint("add -r to copy directories"));
        }
        if is_dir && self.args.if_version.is_some() {
            return Err(one_version());
        }
        let takes_in = self.landing.takes_in(is_dir) && !contents;
        let name = takes_in.then(|| named.file_name().unwrap_or(named.space()));
        let to = target(self.to, name)?;
        if to == *from {
            let what = format!(
                "{from} and {to} are the same {}",
                if is_dir { "directory" } else { "file" }
            );
            return Err(Failure::new(ErrorKind::Usage, code::OVERLAP, what)
                .hint("nothing was changed; give the copy another name"));
        }
        if to.is_inside(from) || from.is_inside(&to) {
            let what = format!("{from} cannot be copied to {to}: one is inside the other");
            return Err(Failure::new(ErrorKind::Usage, code::OVERLAP, what)
                .hint("choose a target outside of it"));
        }
        if let Some(leads_to) = stated.entry.target {
            if !self.args.recursive {
                let what = format!("{from} is a link to {leads_to}");
                return Err(Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what)
                    .hint("name what it leads to, or add -r to copy the link itself"));
            }
            let (mtime, owner) = (Some(stated.entry.mtime), stated.entry.owner);
            let path = self.destination.place(&to)?;
            let link = NewLink { path, target: leads_to, mtime, owner };
            let condition = self.destination.replacing().condition;
            return report.link(&self.client, vec![link], condition).await;
        }
        self.content(from, &to, &stated, shown, report).await?;
        if is_dir && self.args.archive {
            let mut dirs = archived::dirs_of(&self.client, from, &to).await?;
            if self.destination.is_staged() {
                report.archived_dirs.extend(dirs.iter().cloned());
            }
            for (dir, _) in &mut dirs {
                *dir = self.destination.place(dir)?;
            }
            report.add_failed(archived::set_attributes(&self.client, dirs).await);
        }
        Ok(())
    }

    /// Copies a file, or a directory with its content. Bytes are moved only if the pool cannot copy without that.
    async fn content(
        &self,
        from: &PoolPath,
        to: &PoolPath,
        stated: &Stated,
        shown: bool,
        report: &mut CpReport,
    ) -> Result<(), Failure> {
        if self.has_to_move(from, stated).await? {
            let is_dir = stated.entry.kind == EntryKind::Dir;
            let bytes = match is_dir {
                true => self.client.usage(from).await?.bytes,
                false => stated.entry.data(),
            };
            let dirs = match is_dir {
                true => archived::dirs_of(&self.client, from, to).await?,
                false => Vec::new(),
            };
            let dirs = dirs.into_iter().map(|(dir, _)| dir).collect();
            let pairs = [(from.clone(), to.clone())];
            report.stored(self.through(&pairs, to, &dirs, Some(bytes), shown).await?);
            return Ok(());
        }
        let placed = self.destination.place(to)?;
        let condition = self.destination.replacing().condition;
        let redundancy = self.over.redundancy();
        let recursive = self.args.recursive;
        let mut copied =
            self.client.copy_within(from, &placed, recursive, condition, redundancy).await?;
        let lacking: Vec<NotCopied> =
            copied.failed.extract_if(.., |failed| failed.lacks_holders()).collect();
        report.copied(copied);
        if lacking.is_empty() {
            return Ok(());
        }
        let mut pairs = Vec::new();
        for NotCopied { path, .. } in lacking {
            let below = path.names().get(placed.names().len()..).unwrap_or_default();
            let at = |base: &PoolPath| base.join_all(below.iter().map(String::as_str));
            pairs.push((at(from).map_err(bad_path)?, at(to).map_err(bad_path)?));
        }
        let dirs = pairs.iter().filter_map(|(_, target)| target.parent()).collect();
        report.stored(self.through(&pairs, to, &dirs, None, shown).await?);
        Ok(())
    }

    /// Copies `pairs` of sources and targets by reading and writing all bytes. `dirs` are the directories that the
    /// targets come into. One session stores them all, as the safest of these directories asks.
    async fn through(
        &self,
        pairs: &[(PoolPath, PoolPath)],
        to: &PoolPath,
        dirs: &BTreeSet<PoolPath>,
        bytes: Option<u64>,
        shown: bool,
    ) -> Result<PutReport, Failure> {
        let policies = Policies::of(&self.client, to, dirs).await?;
        let placed =
            |(from, to): &(PoolPath, PoolPath)| Ok((from.clone(), self.destination.place(to)?));
        let pairs = pairs.iter().map(placed).collect::<Result<Vec<_>, Failure>>()?;
        let options = PutOptions {
            policy: policies.safest(self.over),
            condition: self.destination.replacing().condition,
            bytes,
            ..PutOptions::default()
        };
        let progress = progress_bar::upload(&self.client, shown, bytes);
        let client = self.client.watched(Arc::clone(&progress));
        client.copy_through(&pairs, &self.destination.place(to)?, &options, progress).await
    }

    /// Returns whether the bytes must go through this client: the command sets more than the redundancy, so that chunks
    /// would differ, or the copy is to another space and one of the two is sealed, with a key of its own.
    async fn has_to_move(&self, from: &PoolPath, stated: &Stated) -> Result<bool, Failure> {
        let redundancy =
            Override { copies: self.over.copies, ec: self.over.ec, ..Override::default() };
        if self.over != redundancy {
            return Ok(true);
        }
        if from.space() == self.to.space() {
            return Ok(false);
        }
        let there = self.client.stat(&self.to_space()?).await?;
        Ok(stated.policy.sealed || there.policy.sealed)
    }

    fn to_space(&self) -> Result<PoolPath, Failure> {
        PoolPath::space_root(self.to.space()).map_err(bad_path)
    }
}

impl CpReport {
    fn copied(&mut self, done: CopyReport) {
        self.files += done.files.len() as u64;
        self.links += done.links;
        self.bytes = done.files.iter().map(|it| it.bytes).fold(self.bytes, u64::saturating_add);
        let changing = done.files.iter().filter(|file| file.changing_to.is_some()).count() as u64;
        *self.without_moving.get_or_insert(0) += done.files.len() as u64;
        *self.changing.get_or_insert(0) += changing;
        let below = done.files.iter().filter(|file| file.below_policy).count() as u64;
        *self.below_policy.get_or_insert(0) += below;
        self.versions.extend(
            done.files
                .into_iter()
                .map(|file| StoredVersion { path: file.path.to_string(), version: file.version.0 }),
        );
        self.failed.extend(
            done.failed
                .into_iter()
                .map(|failed| FailedFile { path: failed.path.to_string(), error: failed.failure }),
        );
    }
}
