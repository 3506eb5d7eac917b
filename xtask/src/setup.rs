//! Sets up a fresh machine: installs what it lacks where xtask may, and prints the command for it where it may not.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::run_command;

/// A program that the system provides, and the Debian packages that bring it.
struct Tool {
    program: &'static str,
    packages: &'static [&'static str],
    /// True for a tool without which nothing works. Without one of the others, only the tests that need it are
    /// skipped.
    required: bool,
    used_for: &'static str,
}

/// The programs that are looked for. cmake, libclang and make are not among them: aws-lc-sys carries bindings for
/// x86-64 and aarch64 and compiles its C and assembly with the compiler alone, and so does the bundled SQLite.
const TOOLS: &[Tool] = &[
    tool("cc", &["gcc", "libc6-dev"], true, "compiles AWS-LC and SQLite"),
    tool("git", &["git"], true, "tells tidy which files belong to the repository"),
    tool("fusermount3", &["fuse3"], false, "tests of mounted pools"),
    tool("mount", &["mount"], false, "tests of full and vanishing disks"),
    tool("prometheus", &["prometheus"], false, "tests of metrics and alerts"),
    tool("strace", &["strace"], false, "the sweep of a manager's system calls"),
    tool("unshare", &["util-linux"], false, "tests in their own namespace"),
    tool("nsenter", &["util-linux"], false, "tests on machines of their own"),
    tool("ip", &["iproute2"], false, "tests of cut networks"),
    tool("dpkg-shlibdeps", &["dpkg-dev"], false, "Debian packages"),
    tool("mmdebstrap", &["mmdebstrap"], false, "installing the Debian package in a fresh root"),
    tool("tc", &["iproute2"], false, "tests of slow networks"),
    tool("python3", &["python3-venv"], false, "the Python wheel and its tests"),
];

const fn tool(
    program: &'static str,
    packages: &'static [&'static str],
    required: bool,
    used_for: &'static str,
) -> Tool {
    Tool { program, packages, required, used_for }
}

/// Installs what is missing. An error means that later steps cannot work.
pub fn run() -> Result<String, String> {
    let components = rustup_components();
    let system = system_tools();
    if !is_root() {
        println!("set-up: not root: tests that mount or shape networks name themselves as skipped");
    }
    components.and(system)
}

fn rustup_components() -> Result<String, String> {
    let missing: Vec<&str> = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")]
        .into_iter()
        .filter(|(program, _)| !answers(program))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(String::new());
    }
    let line = format!("rustup component add {}", missing.join(" "));
    println!("set-up: {line}");
    run_command(Command::new("rustup").args(["component", "add"]).args(&missing))
        .map_err(|error| format!("run: {line} ({error})"))
}

/// Returns whether a program runs. A rustup proxy exists even where its component does not, so looking for a file
/// is not enough.
fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

fn system_tools() -> Result<String, String> {
    let missing = missing(find);
    let Some(packages) = packages(&missing) else { return Ok("nothing missing".to_owned()) };
    for tool in &missing {
        println!("set-up: no `{}` ({})", tool.program, tool.used_for);
    }
    let install = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    let obstacle = if find("apt-get").is_none() {
        Some(format!("no apt-get here; install what brings these programs: {}", packages.join(" ")))
    } else if !is_root() {
        Some(format!("not root; run: sudo apt-get update && sudo {install}"))
    } else {
        println!("set-up: installing {} with apt-get", packages.join(" "));
        let script = format!("apt-get update --quiet && {install}");
        let mut apt = Command::new("sh");
        apt.args(["-c", &script]).env("DEBIAN_FRONTEND", "noninteractive");
        run_command(&mut apt).err().map(|error| format!("apt-get: {error}; run: {script}"))
    };
    match obstacle {
        None => Ok(format!("installed {}", packages.join(" "))),
        Some(text) => {
            println!("set-up: {text}");
            if missing.iter().any(|tool| tool.required) { Err(text) } else { Ok(text) }
        }
    }
}

fn missing(find: impl Fn(&str) -> Option<PathBuf>) -> Vec<&'static Tool> {
    let linux_only = |tool: &Tool| !tool.required && !cfg!(target_os = "linux");
    TOOLS.iter().filter(|tool| !linux_only(tool) && find(tool.program).is_none()).collect()
}

fn packages(missing: &[&Tool]) -> Option<Vec<&'static str>> {
    let mut packages: Vec<_> = missing.iter().flat_map(|tool| tool.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    (!packages.is_empty()).then_some(packages)
}

/// Finds a program on the path, or where Debian keeps programs that mostly root calls.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns whether xtask runs as root, by the owner of its own entry in /proc.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|entry| entry.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_programs_of_one_package_are_installed_once() {
        let missing = missing(|program| match program {
            "ip" | "tc" => None,
            other => Some(PathBuf::from(other)),
        });
        assert!(missing.iter().all(|tool| !tool.required));
        assert_eq!(packages(&missing), Some(vec!["iproute2"]));
    }

    #[test]
    fn a_machine_with_everything_needs_nothing() {
        assert_eq!(packages(&missing(|program| Some(PathBuf::from(program)))), None);
    }
}
