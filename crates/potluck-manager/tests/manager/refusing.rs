//! Tests that every call tells a member without rights in a space what it tells of a space that does not exist.

use crate::granting::{assert_told_the_same, make_space, path};
use crate::lab::{Lab, refused};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::{LockHolderId, SharedWriterId, VersionId};
use potluck_wire::call::Caller;
use potluck_wire::control::{
    BringBack, CheckpointAbort, CheckpointBegin, CheckpointCommit, Condition, KeptList, KeptScope,
    LetGo, LockAuthority, LockLevel, LockTake, OpenPart, Pin, RenewLeases, RoomReserve,
    SeriesPurge, SharedClaim, SharedLeave, SharedTurn, SharedWriters, SnapshotList, SnapshotRemove,
    SnapshotTake,
};
use potluck_wire::error::Failure;

/// Returns the refusals of calls about what is kept, staged, locked, shared and reserved in a space.
async fn refusals(caller: &Caller, space: &str) -> Vec<Failure> {
    let at = || path(&format!("pot://{space}/f"));
    let (name, named) = (|| "s".to_owned(), || space.to_owned());
    let id = || CheckpointId([7; 16]);
    let number = VersionId(1);
    let kept = KeptList { path: at(), scope: KeptScope::AllBelow, after: None };
    let claim = SharedClaim {
        path: at(),
        writer: SharedWriterId([7; 16]),
        name: name(),
        ranges: Vec::new(),
        is_first: true,
        is_all: false,
    };
    let leave = SharedLeave {
        path: at(),
        writer: SharedWriterId([7; 16]),
        has_finished: true,
        waited_ms: 0,
    };
    let commit = CheckpointCommit {
        space: named(),
        id: id(),
        condition: Condition::Always,
        spare_content: false,
        even_if_open: false,
    };
    let begin = CheckpointBegin { id: id(), target: at(), style: CommitStyle::Replace };
    let lock = |level| LockTake {
        holder: LockHolderId([7; 16]),
        is_first: true,
        authority: LockAuthority { path: at(), level },
        waits: false,
    };
    vec![
        refused(caller, &kept).await,
        refused(caller, &BringBack { path: at(), number: None, removed: true }).await,
        refused(caller, &LetGo { path: at(), numbers: vec![number] }).await,
        refused(caller, &SnapshotTake { dir: at(), name: name() }).await,
        refused(caller, &SnapshotRemove { dir: at(), name: name() }).await,
        refused(caller, &SnapshotList { dir: at() }).await,
        refused(caller, &SeriesPurge { dir: at(), dry_run: true }).await,
        refused(caller, &SeriesPurge { dir: at(), dry_run: false }).await,
        refused(caller, &Pin { path: at(), pinned: true }).await,
        refused(caller, &begin).await,
        refused(caller, &commit).await,
        refused(caller, &CheckpointAbort { space: named(), id: id(), if_empty: false }).await,
        refused(caller, &RoomReserve { path: at(), bytes: 1 << 63, for_ms: 1000 }).await,
        refused(caller, &lock(LockLevel::Shared)).await,
        refused(caller, &lock(LockLevel::Exclusive)).await,
        refused(caller, &claim).await,
        refused(caller, &leave).await,
        refused(caller, &SharedTurn { path: at(), writer: SharedWriterId([7; 16]), over: None })
            .await,
        refused(caller, &SharedWriters { path: at() }).await,
        refused(caller, &OpenPart { path: at(), version: number, number: 0 }).await,
        refused(
            caller,
            &RenewLeases {
                space: named(),
                versions: vec![number],
                donors: vec![],
                read_from: vec![],
                traffic: Vec::new(),
            },
        )
        .await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_discloses_a_hidden_space() {
    let lab = Lab::new().await;
    let (ada, bert) = (lab.user().await, lab.user().await);
    make_space(&ada, "hers", false).await;
    let (hidden, missing) = (refusals(&bert, "hers").await, refusals(&bert, "none").await);
    assert_told_the_same(&hidden, &missing);
}
