//! Answers calls about names: listings, facts, sums, and changes.

use super::{Answer, health};
use crate::access::Access;
use crate::call_turns::CallTurns;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::series_uses::SeriesUses;
use crate::shared_files::AllSharedFiles;
use crate::shared_pool::SharedPool;
use crate::waiting_for_donors::WaitingForDonors;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, Error, Met, PageLimit, SeenSpaces, StoredQuota, WhatIsKept, When};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::path::PoolPath;
use potluck_core::quota::QuotaOf;
use potluck_core::rights::Right;
use potluck_pool::Pool;
use potluck_pool::redundancy::{chunk_facts, judge_file};
use potluck_wire::control::{
    Done, HealthLevel, List, Listing, MAX_LINKS, MadeLinks, MakeDir, MakeLinks, Move, NamesChanged,
    NotMade, Remove, Removed, SetAttributes, Stat, Stated, SyncChanges, Usage, Used,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

/// The number of entries and chunks that one answer adds up, which takes some tenths of a second.
const SUMMED: u64 = 20_000;

handles! {
    /// The handles for answering calls about names.
    pub struct NamingCalls {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        uses: Arc<SeriesUses>,
        background: Wakeup,
        wait_until: WaitingForDonors,
        scan_state: Arc<ScanState>,
        call_turns: Arc<CallTurns>,
        access: Access,
        shared_files: AllSharedFiles,
    }
}

impl Answer<List> for NamingCalls {
    async fn answer(self, call: List, caller: CallingMember) -> Result<Listing, Failure> {
        let List { path, recursive, after } = call;
        let seen = self.access.seen_at(&caller, &path).await?;
        let space = path.space().to_owned();
        let listed = self.catalog.list_directory(path, recursive, after, seen.clone());
        let mut listing = listed.await?;
        for entry in &mut listing.entries {
            let space = match space.as_str() {
                "" => entry.path.split('/').next().unwrap_or(""),
                space => space,
            };
            if !seen.rights(space).allow(Right::Read) {
                entry.digest = None;
                entry.metadata = None;
            }
        }
        Ok(listing)
    }
}

impl Answer<Usage> for NamingCalls {
    async fn answer(self, call: Usage, caller: CallingMember) -> Result<Used, Failure> {
        let seen = self.access.seen_at(&caller, &call.path).await?;
        let path = call.path.clone();
        // The catalog adds few sums up at once, and a caller that waits for one must not keep a turn from other
        // members.
        let _turn = self.call_turns.take_among_own(caller.member()?.member).await?;
        let mut used = self.catalog.usage(call.path, call.after, SUMMED, seen).await?;
        if path.names().is_empty() && !path.space().is_empty() {
            let mut quotas = self.catalog.quotas(Some(QuotaOf::Space(path.space().into()))).await?;
            used.quota = quotas.pop().map(StoredQuota::shown);
        }
        Ok(used)
    }
}

impl Answer<Stat> for NamingCalls {
    async fn answer(self, mut call: Stat, caller: CallingMember) -> Result<Stated, Failure> {
        let rights = self.access.need(&caller, Right::List, &call.path).await?;
        // Donors give out chunks by their names, so only callers with the right to read are told the names.
        call.chunks &= rights.allow(Right::Read);
        let path = call.path.clone();
        let mut facts = self.catalog.stat(call.path).await?;
        if !rights.allow(Right::Read) {
            facts.entry.digest = None;
            facts.entry.metadata = None;
        }
        let mut stated = Stated {
            entry: facts.entry,
            policy: facts.policy,
            series: facts.series,
            inline: false,
            chunks: 0,
            chunk_size: 0,
            live_copies: u32::MAX,
            donors: Vec::new(),
            health: None,
            chunk_list: Vec::new(),
            free: None,
            next: None,
        };
        if call.room {
            let pool = self.pool.lock();
            stated.free = Some(pool.storable(&stated.policy, self.time.tick()));
        }
        if let Some(version) = facts.version {
            stated.inline = version.inline;
            stated.chunks = version.chunks;
            stated.chunk_size = version.chunk_size;
            if !call.unjudged {
                if version.chunks > 0 {
                    self.wait_until.donors_reported(Pool::expects_listings).await;
                }
                // To judge takes a thread as well.
                let _turn = self.call_turns.take_for_call(&caller).await?;
                self.judge(path, call.after, call.chunks, &mut stated).await?;
            }
        }
        if stated.donors.is_empty() {
            stated.live_copies = 0;
        }
        Ok(stated)
    }
}

/// The number of chunks of a file made of parts at which an answer ends, which takes some tens of milliseconds.
const PARTS: PageLimit = PageLimit { chunks: 2048, entries: 1 };

impl NamingCalls {
    /// Judges the file at a path, or those of its parts that follow `after`, as many as one answer tells of. Adds their
    /// donors and their health to `stated`, and their chunks if they are to be `listed`.
    async fn judge(
        &self,
        path: PoolPath,
        after: Option<String>,
        listed: bool,
        stated: &mut Stated,
    ) -> Result<(), Failure> {
        let page = self.catalog.files_at(path, after, PARTS, SeenSpaces::ALL).await?;
        let view = Arc::new(self.pool.lock().view(self.time.tick()));
        for (_, met) in page.files {
            let (version, layout) = match met {
                Met::File(version, layout) | Met::Part(version, layout) => (version, layout),
                Met::Damaged(why) => return Err(Failure::from(Error::Damaged(why))),
            };
            let shares = health::shares(&self.pool.lock(), &layout, self.time.tick());
            stated.live_copies = stated.live_copies.min(health::live_copies(&layout, &shares));
            stated.add_shares(shares);
            let (id, view) = (version.id, Arc::clone(&view));
            // There may be many chunks, which are judged on another thread, where they do not hold up other calls.
            let judge = move || {
                let chunks = if listed { chunk_facts(&layout, &view) } else { Vec::new() };
                (judge_file(&version, &layout, &view).health, chunks)
            };
            let (health, chunks) = self.env.offload.run(judge).await;
            if matches!(health.level, HealthLevel::Incomplete | HealthLevel::Unreadable) {
                self.scan_state.found_worse(self.time.tick(), [id]);
            }
            stated.add_health(health);
            stated.describe(chunks);
        }
        stated.next = page.next;
        Ok(())
    }
}

impl Answer<MakeDir> for NamingCalls {
    async fn answer(self, call: MakeDir, caller: CallingMember) -> Result<NamesChanged, Failure> {
        self.access.need(&caller, Right::Write, &call.path).await?;
        let MakeDir { path, parents, permissions, owner } = call;
        let modified = FileTime::of_ms(self.time.when().wall_ms);
        let attributes = EntryAttributes::new(modified, permissions, owner);
        self.catalog.make_directory(path, parents, attributes).await?;
        Ok(NamesChanged { modified })
    }
}

impl Answer<MakeLinks> for NamingCalls {
    async fn answer(self, call: MakeLinks, caller: CallingMember) -> Result<MadeLinks, Failure> {
        let MakeLinks { links, parents, condition } = call;
        let Some(first) = links.first() else { return Ok(MadeLinks::default()) };
        let space = first.path.space();
        if links.len() > MAX_LINKS || links.iter().any(|link| link.path.space() != space) {
            let what = format!("one call makes at most {MAX_LINKS} links, and in one space");
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("make them by several calls"));
        }
        self.access.need(&caller, Right::Write, &first.path).await?;
        let when = self.time.when();
        let made = self.catalog.make_links(links, parents, condition, when);
        let failed = made.await?.into_iter().map(|(path, why)| {
            let failure = Failure::from(why);
            NotMade { path, failure }
        });
        let modified = Some(FileTime::of_ms(when.wall_ms));
        Ok(MadeLinks { failed: failed.collect(), modified })
    }
}

impl Answer<SetAttributes> for NamingCalls {
    async fn answer(self, call: SetAttributes, caller: CallingMember) -> Result<Done, Failure> {
        let SetAttributes { path, version, mut attributes } = call;
        self.access.need(&caller, Right::Write, &path).await?;
        attributes.changed.get_or_insert(FileTime::of_ms(self.time.when().wall_ms));
        self.catalog.set_attributes(path, version, attributes).await?;
        Ok(Done {})
    }
}

impl NamingCalls {
    /// Refuses to move a shared file, or a directory above one, while writers have written bytes that are in no version
    /// of it, or the version is kept back: claims, contributions and marks belong to the path.
    async fn need_no_writers(&self, path: &PoolPath) -> Result<(), Failure> {
        let written = {
            let mut files = self.shared_files.lock().expect("no holder panics");
            files.written_below(path, self.time.tick())
        };
        // A manager that was started again does not know who has finished, but what they wrote is there.
        let staged = self.catalog.written_shared_file(path.clone()).await?;
        for file in written.into_iter().chain(staged) {
            if self.catalog.shared_file(file.clone()).await?.is_some() {
                let what = format!("{file} is shared, and writers have not made a version of it");
                return Err(Failure::new(ErrorKind::Conflict, code::CLAIMED, what)
                    .hint(format!("`potluck write-shared ls {file}` names them")));
            }
        }
        Ok(())
    }
}

impl Answer<Move> for NamingCalls {
    async fn answer(self, call: Move, caller: CallingMember) -> Result<NamesChanged, Failure> {
        let Move { from, to, no_replace, replaces, soon } = call;
        self.access.need(&caller, Right::Write, &from).await?;
        self.access.need(&caller, Right::Write, &to).await?;
        self.need_no_writers(&from).await?;
        let when = self.time.when().made_by(caller.member()?.member).durable(soon);
        let moved = from.clone();
        self.catalog.rename(from, to, no_replace, replaces, when).await?;
        self.uses.moved(&moved);
        Ok(NamesChanged { modified: FileTime::of_ms(when.wall_ms) })
    }
}

impl Answer<SyncChanges> for NamingCalls {
    async fn answer(self, _: SyncChanges, _: CallingMember) -> Result<Done, Failure> {
        self.catalog.sync().await?;
        Ok(Done {})
    }
}

impl Answer<Remove> for NamingCalls {
    async fn answer(self, call: Remove, caller: CallingMember) -> Result<Removed, Failure> {
        self.access.need(&caller, Right::Write, &call.path).await?;
        let keeps = match call.forever {
            true => WhatIsKept::Nothing,
            false => WhatIsKept::AsPoliciesSay,
        };
        let when = self.time.when().made_by(caller.member()?.member).durable(call.soon);
        let when = When { keeps, ..when };
        let removed = self.catalog.remove(call.path, call.only_if, call.recursive, when).await?;
        self.background.wake();
        Ok(Removed { dir_modified: Some(FileTime::of_ms(when.wall_ms)), ..removed })
    }
}
