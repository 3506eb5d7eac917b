//! Installs the Debian package into a root file system that has only the essential packages, uses it, and removes
//! it again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Place, done, output_of};
use crate::setup;

/// The script that enters the root, which is `$1`. It runs in namespaces of its own, so it changes no network,
/// processes or mounts of this machine.
const ENTER: &str = r#"
ip link set lo up
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp sh -eu /tmp/check.sh
"#;

/// The script that runs in the root.
const CHECK: &str = include_str!("in_fresh_root.sh");

/// Installs, uses and removes `package` in a fresh root. The text says what was done, or why it could not be done
/// here.
pub fn test(place: &Place, package: &Path) -> Result<String> {
    if !setup::is_root() {
        return Ok("made; SKIPPED installing it: a root of its own takes root".to_owned());
    }
    let archive = match root_archive(place) {
        Ok(archive) => archive,
        Err(error) => return Ok(format!("made; SKIPPED installing it: {error:#}")),
    };
    let scratch = tempfile::tempdir()?;
    let root = scratch.path();
    done(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(root))?;
    std::fs::copy(package, root.join("tmp/potluck.deb"))?;
    std::fs::write(root.join("tmp/check.sh"), CHECK)?;
    let namespaces = ["--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child"];
    let mut check = Command::new("unshare");
    check.args(namespaces).args(["sh", "-euc", ENTER, "sh"]).arg(root);
    done(&mut check)?;
    Ok("installed, used and removed in a fresh root".to_owned())
}

/// Returns the path of an archive of a root with Debian's essential packages. Its release is the one that this
/// machine runs, on which the program was linked. It is fetched once and kept.
fn root_archive(place: &Place) -> Result<PathBuf> {
    let release = std::fs::read_to_string("/etc/os-release")?;
    let name = |line: &str| line.strip_prefix("VERSION_CODENAME=").map(str::to_owned);
    let name = release.lines().find_map(name).context("this is no release of Debian")?;
    let archive = place.dir().join(format!("{name}.tar"));
    if !archive.is_file() {
        let half = place.dir().join("unfinished.tar");
        let mut tool = Command::new("mmdebstrap");
        let variant = ["--quiet", "--mode=root", "--variant=essential", &name];
        output_of(tool.args(variant).arg(&half)).context("fetching a root with mmdebstrap")?;
        std::fs::rename(half, &archive)?;
    }
    Ok(archive)
}
