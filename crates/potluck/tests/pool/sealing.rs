//! Tests what donors and listeners on the wire can see of a sealed space.

use super::content::{arg, assert_same, bytes};
use super::lab::Lab;
use super::lent::all_contents;
use super::tap::Tap;
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

/// The length in bytes of the windows that must not be seen.
const WINDOW: usize = 16;

struct Canary(HashSet<[u8; WINDOW]>);

impl Canary {
    fn of(texts: &[&[u8]]) -> Self {
        let windows = texts.iter().flat_map(|text| text.windows(WINDOW));
        Self(windows.map(|window| window.try_into().expect("a window")).collect())
    }

    /// Returns how many places in `bytes` show a window.
    fn shows_in(&self, bytes: &[u8]) -> usize {
        bytes.windows(WINDOW).filter(|window| self.0.contains(*window)).count()
    }
}

struct Watched {
    lab: Lab,
    taps: Vec<Tap>,
    canary: Canary,
}

impl Watched {
    /// Makes a pool whose wires are all heard, and stores and reads files in a space made with `options`.
    fn after_use(options: &[&str]) -> Self {
        let mut lab = Lab::manager_only(&[]);
        let taps =
            ["donor-1", "donor-2"].map(|name| lab.lend_behind(name, Tap::listening())).into();
        lab.wait_live();
        lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"], options].concat());
        let name = "the name of a secret file that nobody should read.txt";
        // One file has several chunks, one has one chunk, and one has its content in the catalog.
        let contents = [bytes(9, 500_000), bytes(10, 30_000), bytes(11, 3000)];
        for (number, content) in contents.iter().enumerate() {
            let input = lab.dir().join(format!("{number} {name}"));
            fs::write(&input, content).expect("a file");
            lab.cli.ok(&["cp", arg(&input), "pot://lab/"]);
            let path = format!("pot://lab/{number} {name}");
            assert_same(&lab.cli.cat(&path), content, &path);
        }
        let texts: Vec<&[u8]> =
            contents.iter().map(Vec::as_slice).chain([name.as_bytes()]).collect();
        Self { canary: Canary::of(&texts), lab, taps }
    }

    fn on_the_wire(&self) -> usize {
        self.taps.iter().map(|tap| self.canary.shows_in(&tap.heard())).sum()
    }

    fn on_disk(&self) -> Vec<(PathBuf, usize)> {
        let names = self.lab.donor_names();
        let files = names.iter().flat_map(|name| all_contents(&self.lab.dir().join(name)));
        let shown = files.map(|(path, content)| {
            let name = path.as_os_str().as_encoded_bytes();
            let shows = self.canary.shows_in(&content) + self.canary.shows_in(name);
            (path, shows)
        });
        shown.filter(|(_, shows)| *shows > 0).collect()
    }
}

#[test]
fn a_sealed_space_shows_no_plaintext_on_disk_or_wire() {
    let watched = Watched::after_use(&[]);
    assert_eq!(watched.on_disk(), [], "plaintext on a donor's disk");
    assert_eq!(watched.on_the_wire(), 0, "plaintext on the wire");
    assert!(
        watched.taps.iter().map(|tap| tap.count()).sum::<usize>() > 2 * 530_000,
        "the taps heard it all"
    );
    // The content is not in the manager's files either, small files included; names are there.
    let contents = [bytes(9, 500_000), bytes(10, 30_000), bytes(11, 3000)];
    let canary = Canary::of(&[&contents[0], &contents[1], &contents[2]]);
    for (path, content) in all_contents(&watched.lab.manager_dir()) {
        let shows = canary.shows_in(&content);
        assert_eq!(shows, 0, "plaintext in {}", path.display());
    }
}

#[test]
fn a_plain_space_does_show_it_so_the_test_can_fail() {
    let watched = Watched::after_use(&["--plain"]);
    assert!(!watched.on_disk().is_empty());
    assert!(watched.on_the_wire() > 500_000);
}

#[test]
fn sealing_is_the_default_and_is_shown() {
    let lab = Lab::with_donors(1);
    for (space, options, sealed) in
        [("a", &[][..], true), ("b", &["--seal"], true), ("c", &["--plain"], false)]
    {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        let stated = lab.cli.json(&["stat", &format!("pot://{space}")]);
        assert_eq!(stated["policy"]["sealed"], sealed, "{stated}");
    }
    lab.cli.run(&["space", "create", "d", "--plain", "--seal"]).exits(2);
}
