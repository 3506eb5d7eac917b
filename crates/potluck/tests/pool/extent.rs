//! How much is tried of what has no natural end: moments of death, and operations that are drawn by lot.

/// Returns `short`, or `all` where everything is tried, as `cargo xtask test --all` asks for before an issue is closed.
pub fn cases(short: usize, all: usize) -> usize {
    if std::env::var("POTLUCK_TESTS").is_ok_and(|extent| extent == "all") { all } else { short }
}
