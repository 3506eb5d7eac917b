//! Checks that crates depend on each other in one direction only.

use super::tree::{Offence, Tree};

pub const REASON: &str = "core <- wire <- {donor, client, pool <- catalog <- recovery <- manager}, client <- fronts; roles meet on the wire";

/// Each package of the workspace, and the packages of the workspace that it may use, in tests too.
const MAY_USE: &[(&str, &[&str])] = &[
    ("potluck-line", &[]),
    ("potluck-core", &[]),
    ("potluck-wire", &["core"]),
    ("potluck-donor", &["core", "wire"]),
    ("potluck-pool", &["core", "wire"]),
    ("potluck-catalog", &["core", "wire", "pool"]),
    ("potluck-recovery", &["core", "wire", "pool", "catalog"]),
    ("potluck-manager", &["core", "wire", "pool", "catalog", "recovery"]),
    ("potluck-config", &["core", "wire"]),
    ("potluck-client", &["core", "wire", "config"]),
    ("potluck-mount", &["core", "wire", "client"]),
    ("potluck-gateway", &["core", "wire", "client"]),
    ("potluck-lookaside", &["core", "client"]),
    ("potluck-python", &["client"]),
    ("potluck-origin", &["core", "wire", "client"]),
    (
        "potluck",
        &[
            "core",
            "line",
            "wire",
            "config",
            "donor",
            "recovery",
            "manager",
            "client",
            "mount",
            "lookaside",
            "gateway",
            "origin",
        ],
    ),
    (
        "potluck-sim",
        &["core", "wire", "donor", "catalog", "recovery", "manager", "client", "mount"],
    ),
    ("potluck-bench", &["core", "line", "wire", "pool", "catalog", "client"]),
    ("potluck-fuzz", &["core", "wire", "donor", "catalog", "recovery", "client", "mount"]),
    ("xtask", &[]),
];

/// Finds dependencies that the table does not grant, and packages that it does not know.
pub fn wrong_ways(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for package in &tree.packages {
        let manifest = format!("{}/Cargo.toml", package.directory);
        let Some((_, granted)) = MAY_USE.iter().find(|(name, _)| *name == package.name) else {
            let message = "give this package its place in dependency_direction.rs";
            offences.push(Offence::file(&manifest, message));
            continue;
        };
        let ours = package.dependencies.iter().filter(|name| name.starts_with("potluck"));
        for name in ours {
            let short = name.strip_prefix("potluck-").unwrap_or(name);
            if !granted.contains(&short) {
                let message = format!("{} must not depend on {name}", package.name);
                offences.push(Offence::file(&manifest, message));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Package, shown};
    use super::*;

    #[test]
    fn a_role_that_sees_another_and_an_unknown_package_are_found() {
        let package = |name: &str, dependencies: &[&str]| Package {
            name: name.into(),
            directory: format!("crates/{name}"),
            roots: Vec::new(),
            test_executables: 0,
            dependencies: dependencies.iter().map(|&name| name.into()).collect(),
        };
        let mut tree = Tree::default();
        tree.packages.push(package("potluck-donor", &["potluck-wire", "potluck-manager", "tokio"]));
        tree.packages.push(package("potluck-new", &[]));
        assert_eq!(
            shown(&wrong_ways(&tree)),
            [
                "crates/potluck-donor/Cargo.toml: potluck-donor must not depend on potluck-manager",
                "crates/potluck-new/Cargo.toml: give this package its place in dependency_direction.rs",
            ]
        );
    }
}
