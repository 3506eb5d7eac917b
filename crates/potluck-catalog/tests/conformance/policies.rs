//! Policies of spaces and directories, and the files that follow a change of one.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::path;
use potluck_catalog::fixture::sparse;
use potluck_catalog::{Computed, Encoded};
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::{Override, Policy, Race, Redundancy, Width};
use potluck_core::recipe::LARGEST_FILE;
use potluck_wire::control::Condition;

const TREE: [&str; 4] = ["pot://lab/a", "pot://lab/d/b", "pot://lab/d/e/c", "pot://lab/d/e/f/g"];

fn ec(code: &str) -> Override {
    Override { ec: Some(code.parse().expect("a code")), ..Override::default() }
}

fn copies(copies: u32) -> Override {
    Override { copies: Some(copies), ..Override::default() }
}

fn race(race: Race) -> Override {
    Override { race: Some(race), ..Override::default() }
}

async fn tree() -> Stage {
    let mut stage = Stage::new().await;
    let files = TREE.map(|name| file(name, &[1, 2], &[1])).to_vec();
    assert!(stage.commit(files).await.iter().all(Result::is_ok));
    stage
}

impl Stage {
    async fn set(&self, at: &str, over: Override) {
        self.catalog.set_policy(path(at), over).await.expect("set");
    }

    /// Returns the policy by which a file would be written at a path.
    async fn policy(&self, at: &str) -> Policy {
        self.catalog
            .admit_write(path(at), Condition::Always, 0)
            .await
            .expect("a policy")
            .space
            .policy
    }

    /// Follows a change page by page to its end, and returns the number of files that are to change and their
    /// bytes.
    async fn follow(&self, at: &str, dry_run: bool) -> (u64, u64) {
        let planned = self.catalog.plan_policy(path(at), Override::default()).await;
        let policy = planned.expect("read").expect("one that can be kept").policy;
        let set_at = (!dry_run).then_some(5);
        let (mut after, mut sum) = (None, (0, 0));
        loop {
            let page = self.catalog.follow_policy(path(at), policy.clone(), after, set_at).await;
            let page = page.expect("followed");
            sum = (sum.0 + page.files, sum.1 + page.bytes);
            after = page.next;
            if after.is_none() {
                return sum;
            }
        }
    }

    async fn goal(&self, at: &str) -> Option<String> {
        self.file(at).await.0.goal.map(|goal| goal.to_string())
    }

    /// Returns the goals of the files of [`TREE`]; empty where there is none.
    async fn goals(&self) -> [String; 4] {
        let mut goals = [const { String::new() }; 4];
        for (goal, at) in goals.iter_mut().zip(TREE) {
            *goal = self.goal(at).await.unwrap_or_default();
        }
        goals
    }
}

#[tokio::test]
async fn a_directory_overrides_what_holds_above_it_part_by_part() {
    let stage = tree().await;
    stage.set("pot://lab/d", Override { race: Some(Race::Extra(1)), ..ec("4+2") }).await;
    stage.set("pot://lab/d/e", copies(2)).await;
    assert_eq!(stage.policy("pot://lab").await.redundancy(), Redundancy::Copies(1));
    assert_eq!(stage.policy("pot://lab/d/b").await.redundancy().to_string(), "4+2");
    let deep = stage.policy("pot://lab/d/e/new/file").await;
    assert_eq!((deep.redundancy(), deep.race), (Redundancy::Copies(2), Race::Extra(1)));

    // If a policy is set again, what is left out stays; where nothing is set, the space's policy
    // holds.
    let width = |donors| Some(Width::Donors(donors));
    stage.set("pot://lab/d", Override { stripe_width: width(9), ..Override::default() }).await;
    stage.set("pot://lab", Override { stripe_width: width(7), ..copies(3) }).await;
    let there = stage.policy("pot://lab/d/b").await;
    assert_eq!(
        (there.redundancy().to_string(), there.stripe_width),
        ("4+2".into(), Width::Donors(9))
    );
    let above = stage.policy("pot://lab/a").await;
    assert_eq!((above.copies, above.stripe_width), (3, Width::Donors(7)));

    // A chunk size from above that is too large for an erasure code below is reduced to what fits.
    stage.set("pot://lab/d/e/f", ec("16+8")).await;
    stage.set("pot://lab", Override { chunk_size: Some(64 << 20), ..Override::default() }).await;
    let there = stage.policy("pot://lab/d/e/f/g").await;
    assert_eq!((there.chunk_size, there.check()), (8 << 20, Ok(())));
}

#[tokio::test]
async fn a_directorys_policy_moves_and_ends_with_it() {
    let mut stage = tree().await;
    stage.set("pot://lab/d/e", copies(3)).await;
    let rename = async |from: &str, to: &str| {
        stage.catalog.rename(path(from), path(to), false, None, when(1)).await.expect("moved");
    };
    rename("pot://lab/d/e", "pot://lab/x").await;
    assert_eq!(stage.policy("pot://lab/x/c").await.copies, 3);
    stage.catalog.make_directory(path("pot://lab/y"), false, MADE).await.expect("made");
    stage.set("pot://lab/y", copies(2)).await;
    rename("pot://lab/x", "pot://lab/y").await;
    assert_eq!(stage.policy("pot://lab/y/c").await.copies, 3, "what moved there keeps its own");
    stage.remove("pot://lab/y", 1).await;
    stage.put(file("pot://lab/y/c", &[1], &[1])).await;
    assert_eq!(stage.policy("pot://lab/y/c").await.copies, 1, "a new directory of an old name");
}

#[tokio::test]
async fn nearest_policy_above_a_file_applies() {
    let stage = tree().await;
    stage.set("pot://lab/d/e", copies(3)).await;
    stage.set("pot://lab", ec("2+1")).await;
    assert_eq!(stage.follow("pot://lab", true).await, (2, 4000));
    assert_eq!(stage.goals().await, ["", "", "", ""], "a dry run sets nothing");
    assert_eq!(stage.follow("pot://lab", false).await, (2, 4000));
    assert_eq!(stage.goals().await, ["2+1", "2+1", "", ""]);

    assert_eq!(stage.follow("pot://lab/d/e", false).await, (2, 4000));
    assert_eq!(stage.goals().await, ["2+1", "2+1", "3 copies", "3 copies"]);
    // A later change replaces goals, and calls off those of files that have what it asks for.
    stage.set("pot://lab/d", copies(1)).await;
    assert_eq!(stage.follow("pot://lab/d", false).await, (0, 0));
    assert_eq!(stage.goals().await, ["2+1", "", "3 copies", "3 copies"]);
    let one = stage.policy("pot://lab/d").await;
    let page = stage.catalog.follow_policy(path(TREE[2]), one, None, Some(5)).await;
    assert_eq!((page.expect("one file").files, stage.goal(TREE[2]).await), (0, None));
}

#[tokio::test]
async fn copies_made_for_an_earlier_policy_become_unused() {
    let mut stage = Stage::new().await;
    let version = stage.put(file("pot://lab/a", &[1, 2], &[1, 2])).await;
    let aim = async |stage: &Stage, over| {
        stage.set("pot://lab", over).await;
        stage.follow("pot://lab", false).await;
    };
    // Reports computed parity, and returns how many parity chunks the file is then known to have for its goal.
    let learn = async |stage: &Stage, code: &str, parity: &[u64]| {
        let parity = parity.iter().map(|n| (chunk(*n), 1000)).collect();
        let (ec, holders) = (code.parse().expect("a code"), vec![DonorId(3)]);
        let encoded = Encoded { version, ec, group: 0, parity, holders };
        let learnt = stage.catalog.learn_parity(vec![Computed::Believed(encoded)], 4).await;
        learnt.expect("learnt");
        known_parity(stage).await
    };
    async fn known_parity(stage: &Stage) -> usize {
        let (_, layout) = stage.file("pot://lab/a").await;
        layout.pieces.len() - layout.data
    }
    aim(&stage, ec("2+1")).await;
    assert_eq!(learn(&stage, "2+1", &[11]).await, 1);
    assert_eq!(stage.refs([11]).await, [Some(1)]);

    aim(&stage, ec("2+2")).await;
    assert_eq!(stage.refs([11]).await, [Some(0)], "another code has other parity");
    assert_eq!(learn(&stage, "2+1", &[11]).await, 0, "nobody asked for it any more");
    assert_eq!(learn(&stage, "2+2", &[12, 13]).await, 2);
    stage.follow("pot://lab", false).await;
    assert_eq!(stage.refs([12]).await, [Some(1)], "the same goal keeps what was made");

    aim(&stage, copies(1)).await;
    assert_eq!(stage.refs([12, 13]).await, [Some(0); 2]);
    assert_eq!(stage.goal("pot://lab/a").await, None);
    aim(&stage, ec("2+2")).await;
    assert_eq!(known_parity(&stage).await, 0, "what was made before is forgotten");
}

#[tokio::test]
async fn a_large_tree_follows_page_by_page() {
    let mut stage = Stage::new().await;
    let files = (0..4500).map(|n| file(&format!("pot://lab/{}/{n}", n % 3), &[n % 7], &[1]));
    assert!(stage.commit(files.collect()).await.iter().all(Result::is_ok));
    stage.set("pot://lab", copies(2)).await;
    stage.set("pot://lab/1", copies(4)).await;
    let two = stage.policy("pot://lab").await;
    let page = stage.catalog.follow_policy(path("pot://lab"), two, None, Some(5)).await;
    let page = page.expect("followed");
    assert!(page.files <= 256 && page.next.is_some(), "commits wait for it: {page:?}");
    assert_eq!(stage.follow("pot://lab", false).await, (3000, 3_000_000));
    let stats = stage.catalog.stats(Default::default()).await.expect("counted");
    assert_eq!((stats.changing, stats.changing_bytes), (3000, 3_000_000));
}

#[tokio::test]
async fn no_number_of_the_longest_holes_makes_a_sum_overflow() {
    let mut stage = Stage::new().await;
    let files = (0..9).map(|n| sparse(&format!("pot://lab/{n}"), &[n], LARGEST_FILE - 1000, &[1]));
    assert!(stage.commit(files.collect()).await.iter().all(Result::is_ok));
    stage.set("pot://lab", copies(2)).await;
    assert_eq!(stage.follow("pot://lab", false).await, (9, 9000));
    let stats = stage.catalog.stats(Default::default()).await.expect("counted");
    assert_eq!((stats.files, stats.bytes), (9, 9000));
    assert_eq!((stats.changing, stats.changing_bytes), (9, 9000));
}

#[tokio::test]
async fn reads_race_as_the_directory_of_each_file_says() {
    let stage = tree().await;
    stage.set("pot://lab/d/e", race(Race::Extra(2))).await;
    stage.set("pot://lab/d/e/f", race(Race::Off)).await;
    let races = async |at: &str, recursive, after: Option<&str>| -> Vec<Race> {
        let page = stage.catalog.open_files(path(at), recursive, after.map(String::from)).await;
        page.expect("opened").files.iter().map(|file| file.race).collect()
    };
    let all = races("pot://lab", true, None).await;
    assert_eq!(all, [Race::Auto, Race::Auto, Race::Extra(2), Race::Off]);
    assert_eq!(races("pot://lab", true, Some("d/e/c")).await, [Race::Off]);
    assert_eq!(races("pot://lab/d/e/c", false, None).await, [Race::Extra(2)]);
}

#[tokio::test]
async fn file_below_directory_policy_is_unsafe_and_converted() {
    let mut stage = Stage::new().await;
    async fn there(stage: &Stage, at: &str) -> (Option<String>, bool) {
        let (version, _) = stage.file(at).await;
        (version.goal.map(|goal| goal.to_string()), version.safe_wall_ms.is_some())
    }
    let deep = path("pot://lab/archive/deep");
    stage.catalog.make_directory(deep, true, MADE).await.expect("made");
    stage.set("pot://lab/archive", ec("2+1")).await;
    // One session writes a whole tree, by the policy of the space.
    let files = ["pot://lab/a", "pot://lab/archive/b", "pot://lab/archive/deep/new/c"];
    let outcomes = stage.commit(files.map(|at| file(at, &[1, 2], &[1])).to_vec()).await;
    assert!(outcomes.iter().all(Result::<VersionId, _>::is_ok), "{outcomes:?}");
    assert_eq!(there(&stage, files[0]).await, (None, true));
    assert_eq!(there(&stage, files[1]).await, (Some("2+1".into()), false));
    assert_eq!(there(&stage, files[2]).await, (Some("2+1".into()), false));
    // More redundancy than is asked for is safe, and is changed to what is asked for all the same.
    stage.set("pot://lab/archive/deep", copies(1)).await;
    let mut more = file("pot://lab/archive/deep/d", &[1, 2], &[1, 2]);
    more.version.copies = 2;
    stage.put(more.clone()).await;
    assert_eq!(there(&stage, "pot://lab/archive/deep/d").await, (Some("1 copy".into()), true));
    // The redundancy that a command itself asked for holds, also where another file is replaced.
    stage.asked.over.copies = Some(2);
    stage.put(more).await;
    assert_eq!(there(&stage, "pot://lab/archive/deep/d").await, (None, true));
    stage.put(file("pot://lab/archive/b", &[1], &[1])).await;
    assert_eq!(there(&stage, "pot://lab/archive/b").await, (Some("2 copies".into()), false));
}
