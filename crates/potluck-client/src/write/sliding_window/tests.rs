//! Tests of orders of events that a test with a pool cannot bring about at will.

use super::*;
use crate::attributes::Attributes;
use crate::buffer::Buffers;
use crate::progress::Quiet;
use crate::source::Facts;
use crate::write::pushes::{SessionHandle, VisibleFile};
use crate::writer::Writer;
use potluck_core::chunk::Digest;
use potluck_core::ids::{SessionId, SpaceId, VersionId};
use potluck_core::placement::Plan;
use potluck_core::policy::Policy;
use potluck_core::recipe::{Entry, LARGEST_FILE};
use potluck_wire::addresses::Addresses;
use potluck_wire::call::Caller;
use potluck_wire::control::{Outcome, Reserved};
use potluck_wire::env::{Env, Offload};
use potluck_wire::net::{BoxStream, SystemNet};
use potluck_wire::tls::Dial;
use std::io;
use std::time::Duration;

/// A dialer that reaches no manager.
struct NoManager;

impl Dial for NoManager {
    fn secure(&self, _: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

fn client() -> Pool {
    let caller = Caller::new(Arc::new(SystemNet), Arc::new(NoManager), Addresses::default());
    Pool::new(Env { offload: Offload::Inline, ..Env::system() }, caller)
}

fn window() -> Window {
    let client = client();
    let policy = Policy::default();
    let reserved = Reserved {
        session: SessionId([1; 16]),
        lease_ms: 1000,
        policy: policy.clone(),
        space: SpaceId(1),
        space_key: None,
        striping: Default::default(),
        plan: Plan {
            stripe_size: 1,
            sections: Vec::new(),
            copies: 1,
            chunk_size: policy.chunk_size,
        },
        donors: Vec::new(),
    };
    let session = Reservation::unknown(&client, reserved, path("pot://lab"));
    let (_, pushes) = SessionHandle::new(policy, None, client.clone(), 0);
    Window::new(&client, session, pushes, &PutOptions::default(), Arc::new(Quiet))
}

fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

fn chunk(byte: u8) -> Entry {
    let digest = Digest([byte; 32]);
    Entry { name: ChunkName(digest.0), digest, len: 1, sealed: false }
}

fn facts(at: &str) -> Facts {
    let (size, digest, attributes) = (1, Digest([1; 32]), Attributes::default());
    let (condition, inline, stream, origin) = Default::default();
    let last_part = digest;
    let path = path(at);
    let metadata = None;
    Facts { path, size, digest, last_part, attributes, metadata, stream, condition, origin, inline }
}

/// Adds a chunk to the part of a file that is being filled, and ends that part.
fn cut_part(window: &mut Window, file: u32, at: &str, byte: u8) {
    let number = window.wholes.get(&file).map_or(file, |whole| whole.filling);
    window.files.entry(number).or_default().content.push(chunk(byte));
    window.end_part(file, path(at), Digest([byte; 32]));
}

#[test]
fn late_answers_of_an_aborted_file_are_ignored() {
    let mut window = window();
    cut_part(&mut window, 0, "pot://lab/a", 1);
    let (part, _) = window.committing.ready.pop().expect("a part that is stored");
    // The donors of this part went away, and the manager is asked which are there; meanwhile another part of the file
    // fails.
    let filling = window.wholes[&0].filling;
    window.send_again(part.clone(), None);
    let asked = *window.files.keys().find(|number| **number != filling).expect("it is sent again");
    cut_part(&mut window, 0, "pot://lab/a", 2);
    window.fail_part(PartOf { file: 0, number: 1 }, path("pot://lab/a"), stuck());
    assert!(window.files.is_empty() && window.wholes.is_empty());

    for byte in 3..5 {
        cut_part(&mut window, 1, "pot://lab/b", byte);
    }
    window.take_heard(asked, part, LocatedChunks::default());
    let filling = window.wholes[&1].filling;
    assert!(window.files.contains_key(&filling), "the other file is cut on");
    assert_eq!(window.report.failed.len(), 1, "{:?}", window.report.failed);
}

#[tokio::test(start_paused = true)]
async fn uncommitted_files_keep_their_ready_time() {
    let mut window = window();
    cut_part(&mut window, 0, "pot://lab/a", 1);
    cut_part(&mut window, 0, "pot://lab/a", 2);
    let (part, _) = window.committing.ready.pop().expect("a part that is stored");
    window.committing.ready.clear();
    let whole = FileCommit { in_parts: None, ..part };
    let since = Some(Tick::from_secs(7));
    window.committing.ready_since = since;
    window.committing.ready.extend((0..200).map(|_| (whole.clone(), None)));
    window.commit().expect("begun");
    assert!(window.committing.under_way);
    // One event is scheduled, for the end of the time that the first one waits.
    assert_eq!((window.committing.ready.len(), window.committing.ready_since), (72, since));
}

#[tokio::test]
async fn any_number_of_the_largest_files_may_be_ready() {
    let mut window = window();
    cut_part(&mut window, 0, "pot://lab/a", 1);
    cut_part(&mut window, 0, "pot://lab/a", 2);
    let (part, _) = window.committing.ready.pop().expect("a part that is stored");
    let file = FileCommit { in_parts: None, size: LARGEST_FILE, ..part };
    (0..17).for_each(|_| window.make_ready(file.clone(), None));
    window.committing.note_left();
    assert_eq!(window.committing.ready_bytes, u64::MAX);
    let stored = Outcome::Stored {
        version: VersionId(1),
        below_policy: false,
        at_risk: false,
        dir_modified: None,
    };
    let files = (0..17).map(|_| (file.clone(), None)).collect();
    let committed = Committed { files: vec![stored; 17] };
    window.take_committed(files, committed);
    assert_eq!(window.report.bytes, u64::MAX);
}

#[tokio::test]
async fn ordered_commits_follow_begin_order() {
    let mut window = window();
    window.committing.in_order = true;
    let (slow, quick) = ("pot://lab/slow", "pot://lab/quick");
    let state = |name, open| FileState { facts: Some(facts(name)), open, ..FileState::default() };
    window.files.insert(0, state(slow, 1));
    window.files.insert(1, state(quick, 0));
    window.complete(1);
    window.commit().expect("nothing to do");
    assert!(window.committing.is_idle(), "the first is not stored");
    window.files.get_mut(&0).expect("it is there").open = 0;
    window.complete(0);
    window.complete_in_order();
    let ready = window.committing.ready.iter().map(|(file, _)| file.path.to_string());
    assert_eq!(ready.collect::<Vec<_>>(), [slow, quick]);
}

#[tokio::test(start_paused = true)]
async fn small_files_awaiting_commit_are_bounded() {
    let mut window = window();
    cut_part(&mut window, 0, "pot://lab/a", 1);
    cut_part(&mut window, 0, "pot://lab/a", 2);
    let (part, _) = window.committing.ready.pop().expect("a part that is stored");
    window.committing.ready.clear();
    let small = FileCommit { in_parts: None, ..part };
    let mut cut = 0;
    while window.may_cut() && cut < 10_000 {
        window.make_ready(small.clone(), None);
        cut += 1;
    }
    assert!((256..1000).contains(&cut), "the next commits are full, and no more: {cut}");
    window.commit().expect("begun");
    assert!(window.committing.under_way && window.may_cut(), "it goes on as they are committed");
}

#[tokio::test(start_paused = true)]
async fn finished_file_releases_writer_memory() {
    let policy = Policy { ec: Some("2+1".parse().expect("a code")), ..Policy::default() };
    let mut client = client();
    // Memory for one cut alone, as where other writers have the rest.
    client.buffers = Buffers::new(Cutter::room(&policy));
    let less_than_a_group = vec![7; policy.chunk_size as usize * 3 / 2];
    let (handle, mut pushes) = SessionHandle::new(policy, None, client, 0);
    let mut writer = Writer::new(Arc::new(handle), path("pot://lab/a"), Attributes::default());
    writer.write(&less_than_a_group).await.expect("taken");
    let file = VisibleFile { version: VersionId(7), dir_modified: None, below_policy: false };
    let store = async {
        let (mut groups, mut finished) = (0, None);
        while let Some(push) = pushes.from.recv().await {
            match push {
                Push::Cuts(cuts) => {
                    groups += cuts.iter().filter(|cut| matches!(cut, Cut::Group { .. })).count();
                }
                Push::Await(_, done) => finished = Some(done),
                _ => {}
            }
        }
        let told = finished.expect("it is awaited").send(Ok(file));
        (groups, told)
    };
    let ended = async { tokio::join!(writer.make_visible(), store) };
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    assert_eq!(ended.expect("it does not wait for its own memory"), (Ok(file), (1, Ok(()))));
}
