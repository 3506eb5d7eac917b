//! Tests that the table in the documentation lists the catalog's operations.

/// The module whose documentation has the table.
const TABLE: &str = include_str!("../operations.rs");

/// The files that operations are in.
const FILES: [(&str, &str); 18] = [
    ("caching", include_str!("../operations/caching.rs")),
    ("checkpoints", include_str!("../operations/checkpoints.rs")),
    ("commits", include_str!("../operations/commits.rs")),
    ("donors", include_str!("../operations/donors.rs")),
    ("files", include_str!("../operations/files.rs")),
    ("garbage", include_str!("../operations/garbage.rs")),
    ("grants", include_str!("../operations/grants.rs")),
    ("history", include_str!("../operations/history.rs")),
    ("log", include_str!("../operations/log.rs")),
    ("members", include_str!("../operations/members.rs")),
    ("names", include_str!("../operations/names.rs")),
    ("quotas", include_str!("../operations/quotas.rs")),
    ("redundancy", include_str!("../operations/redundancy.rs")),
    ("series", include_str!("../operations/series.rs")),
    ("sessions", include_str!("../operations/sessions.rs")),
    ("spaces", include_str!("../operations/spaces.rs")),
    ("terms", include_str!("../operations/terms.rs")),
    ("upkeep", include_str!("../operations/upkeep.rs")),
];

/// The most operations that there may be: a new one takes the place of another, or has its reason in
/// docs/notes/0009-the-face-of-the-catalog.md.
const MOST: usize = 111;

/// Returns the operations that the table lists for a file.
fn listed(file: &str) -> Vec<&'static str> {
    let row = TABLE.lines().find(|line| line.contains(&format!("(`{file}`)")));
    let cells = row.unwrap_or_else(|| panic!("the table has no row for {file}"));
    let names = cells.trim_end_matches(" |").rsplit(" | ").next().expect("a last cell");
    names.split_whitespace().map(|name| name.trim_matches('`')).collect()
}

/// Returns the operations that a file defines.
fn defined(text: &'static str) -> Vec<&'static str> {
    let heads = text.lines().filter_map(|line| line.trim().strip_prefix("pub async fn "));
    heads.filter_map(|head| head.split(['(', '<']).next()).collect()
}

#[test]
fn operations_table_is_complete_and_ordered() {
    let mut count = 0;
    for (file, text) in FILES {
        let defined = defined(text);
        assert_eq!(listed(file), defined, "{file}");
        count += defined.len();
    }
    let rows = TABLE.lines().filter(|line| line.starts_with("//! | ") && line.contains("(`"));
    assert_eq!(rows.count(), FILES.len(), "a row for each file");
    assert!(count <= MOST, "{count} operations");
}
