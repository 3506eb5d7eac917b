//! Finds packages with more than one integration test executable.

use super::tree::{Offence, Tree};

pub const REASON: &str = "each further test executable links the whole product once more";

/// Finds packages with more than one integration test target.
pub fn too_many(tree: &Tree) -> Vec<Offence> {
    let many = tree.packages.iter().filter(|package| package.test_executables > 1);
    many.map(|package| {
        let message =
            format!("{} test executables: make them modules of one", package.test_executables);
        Offence::file(&format!("{}/tests", package.directory), message)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Package, shown};
    use super::*;

    #[test]
    fn a_second_test_executable_is_found() {
        let package = |test_executables| Package {
            name: "p".into(),
            directory: "crates/p".into(),
            roots: Vec::new(),
            test_executables,
            dependencies: Vec::new(),
        };
        let tree = Tree { files: Vec::new(), packages: vec![package(1), package(2)] };
        let found = "crates/p/tests: 2 test executables: make them modules of one";
        assert_eq!(shown(&too_many(&tree)), [found]);
    }
}
