//! The Debian package: a tree of files, packed by dpkg-deb.
//!
//! dpkg-deb is on every machine that can install the package, and dpkg-shlibdeps comes with dpkg-dev; cargo-deb
//! would bring two hundred crates to write the same few lines of control file.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Place, Profile, done, output_of};

const MAINTAINER: &str = "Potluck maintainers <maintainers@example.org>";
/// The directory of the sources that are not generated.
const SOURCES: &str = "packaging/debian";
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes the Debian package and returns its path.
pub fn build(place: &Place, profile: Profile) -> Result<PathBuf> {
    let program = place.program(profile)?;
    let tree = Staged { root: place.dir().join("debian") };
    let _ = fs::remove_dir_all(&tree.root);
    tree.copy(&program, "usr/bin/potluck")?;
    tree.manual_pages(&program)?;
    tree.completions(&program)?;
    tree.units()?;
    tree.mount_helper()?;
    tree.documentation()?;
    tree.control(&program)?;

    let version = env!("CARGO_PKG_VERSION");
    let architecture = output_of(Command::new("dpkg").arg("--print-architecture"))?;
    let flavour = if profile == Profile::Dev { "+dev" } else { "" };
    let name = format!("potluck_{version}{flavour}_{}.deb", architecture.trim());
    let package = place.dir().join(name);
    done(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&tree.root)
            .arg(&package)
            // With the commit's time, one commit always makes the same package.
            .env("SOURCE_DATE_EPOCH", of_commit("%ct")?)
            .stdout(std::process::Stdio::null()),
    )?;
    Ok(package)
}

/// The tree as it will be installed, with its `DEBIAN` directory.
struct Staged {
    root: PathBuf,
}

impl Staged {
    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        fs::copy(from, self.place(to)?).with_context(|| format!("copying {}", from.display()))?;
        Ok(())
    }

    fn write(&self, to: &str, text: impl AsRef<[u8]>) -> Result<()> {
        Ok(fs::write(self.place(to)?, text)?)
    }

    /// Returns the path of a file in the tree, and makes the directories above it.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let place = self.root.join(path);
        fs::create_dir_all(place.parent().context("a file stands in a directory")?)?;
        Ok(place)
    }

    fn manual_pages(&self, program: &Path) -> Result<()> {
        let dir = self.root.join("usr/share/man/man1");
        done(Command::new(program).args(["--quiet", "man"]).arg(&dir))?;
        let pages = fs::read_dir(&dir)?.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
        done(Command::new("gzip").arg("-9n").args(pages))
    }

    fn completions(&self, program: &Path) -> Result<()> {
        for (shell, to) in [
            ("bash", "usr/share/bash-completion/completions/potluck"),
            ("zsh", "usr/share/zsh/vendor-completions/_potluck"),
            ("fish", "usr/share/fish/vendor_completions.d/potluck.fish"),
        ] {
            self.write(to, output_of(Command::new(program).args(["completion", shell]))?)?;
        }
        Ok(())
    }

    /// Copies the units of systemd, of the machine and of its users. None of them is enabled.
    fn units(&self) -> Result<()> {
        for scope in ["system", "user"] {
            for unit in fs::read_dir(format!("packaging/systemd/{scope}"))? {
                let unit = unit?.path();
                let name = unit.file_name().context("a name")?.to_string_lossy().into_owned();
                self.copy(&unit, &format!("usr/lib/systemd/{scope}/{name}"))?;
            }
        }
        Ok(())
    }

    /// Links the name by which mount(8) finds the program for lines of /etc/fstab, and its manual page.
    fn mount_helper(&self) -> Result<()> {
        for (link, to) in [
            ("usr/sbin/mount.potluck", "../bin/potluck"),
            ("usr/share/man/man8/mount.potluck.8.gz", "../man1/potluck-mount.1.gz"),
        ] {
            symlink(to, self.place(link)?).with_context(|| format!("linking {link}"))?;
        }
        Ok(())
    }

    fn documentation(&self) -> Result<()> {
        let doc = "usr/share/doc/potluck";
        self.copy(&Path::new(SOURCES).join("copyright"), &format!("{doc}/copyright"))?;
        for name in ["README.md", "ARCHITECTURE.md"] {
            self.copy(Path::new(name), &format!("{doc}/{name}"))?;
        }
        // The README leads to these folders, so they come with it.
        for folder in ["docs", "docs/format", "docs/notes"] {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_file() {
                    let name = path.file_name().context("a name")?.to_string_lossy();
                    self.copy(&path, &format!("{doc}/{folder}/{name}"))?;
                }
            }
        }
        let changes = format!(
            "potluck ({}) unstable; urgency=medium\n\n  * Built from {}.\n\n -- {MAINTAINER}  {}\n",
            env!("CARGO_PKG_VERSION"),
            of_commit("%h")?,
            of_commit("%aD")?,
        );
        self.write(&format!("{doc}/changelog"), changes)?;
        done(Command::new("gzip").arg("-9n").arg(self.root.join(doc).join("changelog")))?;
        let overrides = Path::new(SOURCES).join("lintian-overrides");
        self.copy(&overrides, "usr/share/lintian/overrides/potluck")
    }

    fn control(&self, program: &Path) -> Result<()> {
        for script in SCRIPTS {
            self.copy(&Path::new(SOURCES).join(script), &format!("DEBIAN/{script}"))?;
        }
        let sums = "find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums";
        done(Command::new("sh").args(["-c", sums]).current_dir(&self.root))?;

        let mut control = String::from("Package: potluck\n");
        let architecture = output_of(Command::new("dpkg").arg("--print-architecture"))?;
        let size = output_of(Command::new("du").args(["-k", "-s"]).arg(self.root.join("usr")))?;
        for (field, value) in [
            ("Version", env!("CARGO_PKG_VERSION")),
            ("Architecture", architecture.trim()),
            ("Maintainer", MAINTAINER),
            ("Installed-Size", size.split_whitespace().next().context("a size")?),
            ("Depends", &shared_libraries(program)?),
            // For users who are not root, `potluck mount` runs its fusermount3.
            ("Recommends", "fuse3"),
            ("Section", "utils"),
            ("Priority", "optional"),
            ("Description", fs::read_to_string(format!("{SOURCES}/description"))?.trim_end()),
        ] {
            writeln!(control, "{field}: {value}")?;
        }
        self.write("DEBIAN/control", control)?;
        // The modes do not depend on the umask and the checkout.
        done(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&self.root))?;
        let scripts = SCRIPTS.map(|script| self.root.join("DEBIAN").join(script));
        done(Command::new("chmod").arg("755").args(scripts))
    }
}

/// Returns the packages with the libraries that the program is linked with, in the versions that have the symbols
/// it uses.
fn shared_libraries(program: &Path) -> Result<String> {
    // dpkg-shlibdeps expects to run in a source package.
    let source = tempfile::tempdir()?;
    fs::create_dir(source.path().join("debian"))?;
    fs::write(
        source.path().join("debian/control"),
        "Source: potluck\n\nPackage: potluck\nArchitecture: any\n",
    )?;
    let mut tool = Command::new("dpkg-shlibdeps");
    let said = output_of(tool.arg("-O").arg(program).current_dir(source.path()))
        .context("asking dpkg-shlibdeps, of the package dpkg-dev")?;
    let depends = said.trim().strip_prefix("shlibs:Depends=").context("no dependencies found")?;
    Ok(depends.to_owned())
}

/// Asks git about the commit that is packed, in the notation of `git log --format`.
fn of_commit(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    let said = output_of(git.args(["log", "-1", &format!("--format={format}")]))?;
    Ok(said.trim().to_owned())
}
