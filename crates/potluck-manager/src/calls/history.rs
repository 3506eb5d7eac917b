//! Answers calls about old versions, and about removed files, directories and links that are kept: calls that list
//! them, bring them back and let them go. Also answers calls about snapshots of directories.

use super::Answer;
use crate::access::Access;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::wakeup::Wakeup;
use potluck_catalog::{BroughtBack, Catalog, TakenSnapshot};
use potluck_core::rights::Right;
use potluck_wire::control::{
    BringBack, BroughtBackAs, Done, KeptList, KeptListed, LetGo, ListedEntry, MOST_LET_GO,
    SnapshotAbout, SnapshotList, SnapshotRemove, SnapshotTake, Snapshots,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

handles! {
    /// The handles for answering calls about what is kept.
    pub struct HistoryCalls {
        time: PoolTime,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        background: Wakeup,
        access: Access,
    }
}

impl Answer<KeptList> for HistoryCalls {
    async fn answer(self, call: KeptList, caller: CallingMember) -> Result<KeptListed, Failure> {
        let KeptList { path, scope, after } = call;
        let seen = self.access.seen_at(&caller, &path).await?;
        let (space, now) = (path.space().to_owned(), self.time.now_ms());
        let mut listed = self.catalog.kept(path, scope, after, now, seen.clone()).await?;
        let hide = |space: &str, entry: &mut ListedEntry| {
            if !seen.rights(space).allow(Right::Read) {
                entry.digest = None;
                entry.metadata = None;
            }
        };
        listed.current.iter_mut().for_each(|entry| hide(&space, entry));
        for about in &mut listed.kept {
            hide(about.path.space(), &mut about.entry);
        }
        for about in &mut listed.kept {
            about.by = about.member.and_then(|by| self.members.names(&[by]).pop());
        }
        Ok(listed)
    }
}

impl Answer<BringBack> for HistoryCalls {
    async fn answer(
        self,
        call: BringBack,
        caller: CallingMember,
    ) -> Result<BroughtBackAs, Failure> {
        let BringBack { path, number, removed } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        let when = self.time.when().made_by(caller.member()?.member);
        let BroughtBack { number, replaced } =
            self.catalog.bring_back(path, number, removed, when).await?;
        self.background.wake();
        Ok(BroughtBackAs { number, replaced })
    }
}

impl Answer<LetGo> for HistoryCalls {
    async fn answer(self, call: LetGo, caller: CallingMember) -> Result<Done, Failure> {
        let LetGo { path, numbers } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        if numbers.len() > MOST_LET_GO {
            let what = format!("one call lets at most {MOST_LET_GO} versions go");
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("let them go by several calls"));
        }
        self.catalog.let_go(path, numbers, self.time.when()).await?;
        self.background.wake();
        Ok(Done {})
    }
}

impl Answer<SnapshotTake> for HistoryCalls {
    async fn answer(
        self,
        call: SnapshotTake,
        caller: CallingMember,
    ) -> Result<SnapshotAbout, Failure> {
        let SnapshotTake { dir, name } = call;
        self.access.need_in_a_space(&caller, Right::Write, &dir).await?;
        let when = self.time.when().made_by(caller.member()?.member);
        let taken = self.catalog.take_snapshot(dir, name, when).await?;
        Ok(self.about(taken))
    }
}

impl Answer<SnapshotRemove> for HistoryCalls {
    async fn answer(self, call: SnapshotRemove, caller: CallingMember) -> Result<Done, Failure> {
        let SnapshotRemove { dir, name } = call;
        self.access.need_in_a_space(&caller, Right::Write, &dir).await?;
        self.catalog.remove_snapshot(dir, name).await?;
        self.background.wake();
        Ok(Done {})
    }
}

impl Answer<SnapshotList> for HistoryCalls {
    async fn answer(self, call: SnapshotList, caller: CallingMember) -> Result<Snapshots, Failure> {
        self.access.need_in_a_space(&caller, Right::List, &call.dir).await?;
        let taken = self.catalog.snapshots(call.dir).await?;
        let snapshots = taken.into_iter().map(|taken| self.about(taken)).collect();
        Ok(Snapshots { snapshots })
    }
}

impl HistoryCalls {
    fn about(&self, taken: TakenSnapshot) -> SnapshotAbout {
        let TakenSnapshot { at, made_wall_ms, by: member, .. } = taken;
        let name = at.file_name().unwrap_or_default().to_owned();
        let by = member.and_then(|by| self.members.names(&[by]).pop());
        SnapshotAbout { name, at, made_wall_ms, member, by }
    }
}
