//! Tests the actions and refusals of a donor that starts.

use crate::manager::{DONOR, Manager};
use crate::pool::{GIB, Place, Pool, content, lender};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::DonorId;
use potluck_core::policy::AckLevel;
use potluck_donor::disk::{SystemDisk, conformance};
use potluck_donor::{
    Claiming, Donor, DonorConfig, DonorError, StoreError, StoreRemoved, remove_store,
};
use potluck_wire::bulk::BulkStatus;
use potluck_wire::env::Env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

async fn start(config: DonorConfig) -> Result<Donor, DonorError> {
    let caller = Manager::start().await.caller();
    Donor::start(config, lender(DONOR, Claiming::Own), Env::system(), Arc::new(SystemDisk), caller)
        .await
}

async fn start_as(
    donor: DonorId,
    config: DonorConfig,
    claiming: Claiming,
) -> Result<Donor, StoreError> {
    let caller = Manager::start().await.caller();
    let lender = lender(donor, claiming);
    match Donor::start(config, lender, Env::system(), Arc::new(SystemDisk), caller).await {
        Ok(donor) => Ok(donor),
        Err(DonorError::Store(why)) => Err(why),
        Err(other) => panic!("{other}"),
    }
}

async fn refusal(place: &Place) -> StoreError {
    match start(place.config(GIB)).await {
        Err(DonorError::Store(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

/// Makes a place whose store holds one chunk and is not in use.
async fn used() -> (Place, ChunkName) {
    let pool = Pool::start().await;
    let bytes = content(1, 200_000);
    assert_eq!(pool.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    (pool.stop().await.0, ChunkName::of(&bytes))
}

#[test]
fn the_machines_disk_keeps_the_contract() {
    conformance::check(&SystemDisk, tempfile::TempDir::new().expect("a directory").path());
}

#[tokio::test]
async fn stored_chunks_survive_a_restart() {
    let (place, name) = used().await;
    let pool = Pool::at(place, GIB, Arc::new(SystemDisk)).await;
    assert_eq!(pool.client().await.get(&name).await, Some(content(1, 200_000)));
}

#[tokio::test]
async fn a_bare_mount_point_is_never_taken_for_an_empty_store() {
    let (place, _) = used().await;
    fs::rename(place.lent(), place.lent().with_extension("elsewhere")).expect("unmount");
    let why = refusal(&place).await;
    assert!(matches!(why, StoreError::Missing { .. }), "{why}");
    assert!(why.to_string().contains("mount the disk"), "{why}");
    fs::create_dir(place.lent()).expect("the mount point");
    let why = refusal(&place).await;
    assert!(matches!(why, StoreError::Missing { .. }), "{why}");
    assert_eq!(fs::read_dir(place.lent()).expect("dir").count(), 0, "nothing was made there");
}

#[tokio::test]
async fn a_disk_that_vanishes_takes_nothing_more_and_is_not_made_anew() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    fs::rename(pool.place.lent(), pool.place.lent().with_extension("pulled")).expect("pull");
    pool.manager
        .until("that there is no room", |state| (state.heartbeats.last()?.room == 0).then_some(()))
        .await;
    assert_eq!(client.put(&content(1, 10), AckLevel::Memory).await, BulkStatus::DiskFailed);
    assert!(!pool.place.lent().exists());
}

#[tokio::test]
async fn only_this_donors_store_is_taken() {
    let (place, _) = used().await;
    let (other, _) = used().await;
    fs::remove_dir_all(place.lent()).expect("remove");
    fs::rename(other.lent(), place.lent()).expect("swap");
    assert!(matches!(refusal(&place).await, StoreError::Earlier { .. }));

    let mut moved = other.config(GIB);
    moved.dir = other.lent().with_extension("new");
    let why = start(moved).await.err().expect("refused").to_string();
    assert!(why.contains("store is at"), "{why}");
}

#[tokio::test]
async fn store_adoption_is_explicit_and_exclusive() {
    let (place, name) = used().await;
    let other = DonorId(DONOR.0 + 1);
    // The donor's state and identity are lost, and it joined again as another member.
    let second = |claiming| {
        let config =
            DonorConfig { state: place.state().with_extension("new"), ..place.config(GIB) };
        start_as(other, config, claiming)
    };
    for claiming in [Claiming::Own, Claiming::Anew] {
        let why = second(claiming).await.err().expect("refused");
        assert!(matches!(why, StoreError::Other { .. }), "{why}");
        assert!(why.to_string().contains("--adopt-store"), "{why}");
    }
    drop(second(Claiming::Adopt).await.expect("taken over"));
    assert!(place.chunk(&name).exists());
    // The donor that had it before finds that out.
    let why = start_as(DONOR, place.config(GIB), Claiming::Own).await.err().expect("refused");
    assert!(matches!(why, StoreError::Other { .. }), "{why}");
    drop(second(Claiming::Own).await.expect("its own by now"));
    let removed = remove_store(&place.lent(), &lender(DONOR, Claiming::Own).owner);
    assert!(matches!(removed, Err(StoreError::Other { .. })));
    assert!(place.chunk(&name).exists());
    let removed = remove_store(&place.lent(), &lender(other, Claiming::Own).owner);
    assert!(matches!(removed, Ok(StoreRemoved::All)));
    assert!(!place.lent().exists());
}

#[tokio::test]
async fn a_store_of_another_pool_is_never_taken_over() {
    let (place, name) = used().await;
    let mut stranger = lender(DONOR, Claiming::Adopt);
    stranger.owner.pool = Digest([99; 32]);
    let config = DonorConfig { state: place.state().with_extension("new"), ..place.config(GIB) };
    let caller = Manager::start().await.caller();
    let started = Donor::start(config, stranger, Env::system(), Arc::new(SystemDisk), caller).await;
    let why = started.err().expect("refused");
    assert!(matches!(why, DonorError::Store(StoreError::OtherPool { .. })), "{why}");
    assert!(place.chunk(&name).exists());
}

#[tokio::test]
async fn new_store_needs_a_request_and_no_existing_store() {
    let (place, _) = used().await;
    let elsewhere = DonorConfig { dir: place.lent().with_extension("new"), ..place.config(GIB) };
    let why = start_as(DONOR, elsewhere.clone(), Claiming::Anew).await.err().expect("refused");
    assert!(matches!(why, StoreError::HasOne(_)), "{why}");
    fs::remove_dir_all(place.lent()).expect("lost");
    let why = start_as(DONOR, elsewhere.clone(), Claiming::Own).await.err().expect("refused");
    assert!(why.to_string().contains("--new-store"), "{why}");
    drop(start_as(DONOR, elsewhere.clone(), Claiming::Anew).await.expect("begun"));
    drop(start_as(DONOR, elsewhere, Claiming::Own).await.expect("its own"));
}

#[tokio::test]
async fn interrupted_new_store_must_be_requested_again() {
    let (place, _) = used().await;
    let elsewhere = DonorConfig { dir: place.lent().with_extension("new"), ..place.config(GIB) };
    fs::remove_dir_all(place.lent()).expect("lost");
    let remembered = fs::read(place.state().join("donor.json")).expect("a state");
    drop(start_as(DONOR, elsewhere.clone(), Claiming::Anew).await.expect("begun"));
    // The donor died when the marker was there, and nothing else yet.
    fs::write(place.state().join("donor.json"), remembered).expect("written");
    let again = |claiming| start_as(DONOR, elsewhere.clone(), claiming);
    let used = again(Claiming::Anew).await.err().expect("refused: more than a marker is there");
    assert!(matches!(used, StoreError::Earlier { .. }), "{used}");
    for entry in fs::read_dir(&elsewhere.dir).expect("listed").map(|entry| entry.expect("listed")) {
        if entry.file_name() != "potluck-store.json" {
            fs::remove_dir_all(entry.path()).expect("removed");
        }
    }
    let why = again(Claiming::Own).await.err().expect("refused");
    assert!(matches!(why, StoreError::Earlier { .. }), "{why}");
    drop(again(Claiming::Anew).await.expect("begun"));
    drop(again(Claiming::Own).await.expect("its own"));
}

#[tokio::test]
async fn the_owners_files_are_never_mixed_with_the_pools() {
    let place = Place::new();
    fs::create_dir(place.lent()).expect("make");
    fs::write(place.lent().join("thesis.tex"), b"42").expect("write");
    assert!(matches!(refusal(&place).await, StoreError::Foreign(_)));
    assert_eq!(fs::read_dir(place.lent()).expect("dir").count(), 1, "nothing was made there");
}

#[tokio::test]
async fn a_fresh_disk_and_a_half_begun_store_are_fine() {
    let place = Place::new();
    fs::create_dir(place.lent()).expect("make");
    fs::create_dir(place.lent().join("lost+found")).expect("make");
    fs::write(place.lent().join("potluck-store.tmp"), b"{").expect("write");
    start(place.config(GIB)).await.expect("starts");
}

#[tokio::test]
async fn two_donors_never_share_a_directory() {
    let pool = Pool::start().await;
    let mut second = Place::new().config(GIB);
    second.dir = pool.place.lent();
    match start(second).await {
        Err(DonorError::Store(StoreError::Locked(_))) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
    pool.still_serves().await;
}

#[tokio::test]
async fn unknown_store_format_is_left_alone() {
    let (place, _) = used().await;
    let marker = place.lent().join("potluck-store.json");
    let text = fs::read_to_string(&marker).expect("marker");
    let of_format = |format: u32| {
        let other = text.replace("\"format\": 2", &format!("\"format\": {format}"));
        assert_ne!(other, text);
        fs::write(&marker, other).expect("write");
    };
    of_format(3);
    assert!(matches!(refusal(&place).await, StoreError::TooNew { format: 3, .. }));
    of_format(1);
    let refused = refusal(&place).await;
    assert!(matches!(refused, StoreError::TooOld { format: 1, .. }));
    let said = refused.to_string();
    assert!(said.contains("potluck leave") && said.contains("--new-store"), "{said}");
}

#[tokio::test]
async fn leftovers_of_a_killed_donor_are_cleaned_up() {
    let (place, name) = used().await;
    let chunks = place.lent().join("chunks");
    fs::write(place.lent().join("temp/0123-4"), vec![0; 50_000]).expect("an unfinished chunk");
    let cut = ChunkName::of(b"cut");
    let hex = cut.to_string();
    fs::write(chunks.join(&hex[..2]).join(&hex), b"too short").expect("a cut chunk");
    let wrong = chunks.join("00").join(&hex);
    fs::write(&wrong, vec![0; 5000]).expect("a chunk where it is never looked for");

    let pool = Pool::at(place, GIB, Arc::new(SystemDisk)).await;
    assert!(pool.place.files("temp").is_empty());
    assert_eq!(pool.place.files("quarantine").len(), 2);
    let inventory = pool.manager.until("an inventory", |state| state.inventory()).await;
    assert_eq!(inventory.len(), 1);
    assert_eq!(inventory[0].name, name);
    // There are the marker, the chunk, and two quarantined files, which take room until somebody looks at them.
    let used = pool.manager.state().heartbeats[0].disk.lent_used;
    assert_eq!(used, 4096 + 49 * 4096 + 4096 + 8192);
}

#[tokio::test]
async fn only_its_owner_can_look_into_a_store() {
    let (place, _) = used().await;
    check_modes(&place.lent());
    check_modes(&place.state());
}

fn check_modes(dir: &Path) {
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(dir), 0o700, "{}", dir.display());
    for entry in fs::read_dir(dir).expect("dir") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            check_modes(&path);
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}
