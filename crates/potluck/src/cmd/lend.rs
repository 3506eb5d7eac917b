//! `potluck lend`: the donor.

use super::Ending;
use super::join;
use crate::args::{Lend, LendTerms};
use crate::output::Output;
use crate::ready;
use crate::settings::{self, Settings};
use potluck_core::budget::Limits;
use potluck_core::size::format_size;
use potluck_donor::disk::SystemDisk;
use potluck_donor::{Donor, DonorConfig};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Less is a mistake: it holds no chunk of the usual size.
const LEAST_MAX: u64 = 1 << 20;
/// Never lend more than this unless told to.
const DEFAULT_MAX: u64 = 500 << 30;

pub async fn run(args: Lend, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
    let state = args.state.unwrap_or_else(|| settings.donor_dir());
    if let Some(token) = &args.token {
        join::donor(token, args.name, &state).await?;
    }
    let identity = Settings::donor_identity(&state)?;
    let dir = absolute(&args.dir)?;
    let config = DonorConfig {
        listen: args.listen,
        advertise: args.advertise,
        ..config(args.terms, dir, absolute(&state)?)?
    };
    let donor = start(config, &identity, output).await?;
    let stopped = ready::asked_to_stop(); // before anybody takes it for ready
    ready::announce(args.ready_file.as_deref(), donor.address())?;
    donor.run(stopped).await.map_err(failed)?;
    Ok(Ending::Done)
}

/// The path from the root: a daemon's working directory means nothing.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let what = format!("“{}” names no directory: {error}", path.display());
        Failure::new(ErrorKind::Usage, code::LOCAL_IO, what).hint("name the directory to lend")
    })
}

/// Starts a donor and says what it lends.
pub async fn start(
    config: DonorConfig,
    identity: &Identity,
    output: &Output,
) -> Result<Donor, Failure> {
    let (dir, limits) = (config.dir.display().to_string(), config.limits);
    let caller = settings::caller(identity)?;
    let donor =
        Donor::start(config, Env::system(), Arc::new(SystemDisk), caller).await.map_err(failed)?;
    output.note(&format!(
        "lending up to {} in {dir} to pool {}, always leaving {} of the disk free; {} can be \
         stored now; at {}",
        format_size(limits.max),
        identity.about.pool,
        limits.keep_free,
        format_size(donor.room()),
        donor.address(),
    ));
    if donor.room() == 0 {
        output.note(
            "warning: nothing more can be stored there now: make room on the disk, or lend on \
             other terms (--max, --keep-free)",
        );
    }
    Ok(donor)
}

/// A donor that lends on these terms; by default a quarter of what is free now.
///
/// Errors: terms on which nothing could ever be lent.
pub fn config(terms: LendTerms, dir: PathBuf, state: PathBuf) -> Result<DonorConfig, Failure> {
    let disk = disk_of(&dir)?;
    let refused = |what: String, hint: &str| {
        Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint))
    };
    if let Some(max) = terms.max.filter(|max| *max < LEAST_MAX) {
        let (max, least) = (format_size(max), format_size(LEAST_MAX));
        return refused(
            format!("--max {max} is too little to lend: at least {least}"),
            "give a unit, such as 200GiB; to lend nothing, do not run `potluck lend`",
        );
    }
    if terms.keep_free.floor(disk.total) >= disk.total {
        let (keep, total) = (terms.keep_free, format_size(disk.total));
        return refused(
            format!(
                "--keep-free {keep} leaves nothing to lend: the disk of {} has {total}",
                dir.display()
            ),
            "keep less free, or mount the disk if another one belongs there",
        );
    }
    let label = terms.label.map(|label| label.trim().to_owned());
    if label.as_deref() == Some("") {
        return refused(
            "--label names nothing".into(),
            "name what fails together with this machine, such as room-12, or leave --label out",
        );
    }
    let max = terms.max.unwrap_or_else(|| (disk.free / 4).min(DEFAULT_MAX));
    let limits = Limits { max, keep_free: terms.keep_free };
    Ok(DonorConfig {
        label,
        grace: terms.away,
        scrub_every: terms.scrub_every,
        ..DonorConfig::new(dir, state, limits)
    })
}

/// A disk in bytes.
struct DiskSize {
    total: u64,
    free: u64,
}

fn disk_of(dir: &Path) -> Result<DiskSize, Failure> {
    // The directory may not be made yet; its file system is that of the nearest one that is.
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let about = rustix::fs::statvfs(existing).map_err(|error| {
        let what = format!("cannot look at the disk of {}: {error}", dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("name a directory of this machine")
    })?;
    let bytes = |blocks: u64| blocks * about.f_frsize;
    Ok(DiskSize { total: bytes(about.f_blocks), free: bytes(about.f_bavail) })
}

/// A donor that cannot go on.
pub fn failed(error: potluck_donor::DonorError) -> Failure {
    Failure::new(ErrorKind::Other, code::LOCAL_IO, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn terms(line: &[&str]) -> Result<DonorConfig, String> {
        let args = [&["potluck", "lend", "/tmp"], line].concat();
        let args = Args::try_parse_from(args).map_err(|why| why.to_string())?;
        let Command::Lend(lend) = args.command else { panic!("another command") };
        let refused = |why: Failure| format!("{why}; {}", why.hint);
        config(lend.terms, lend.dir, PathBuf::from("/state")).map_err(refused)
    }

    #[test]
    fn terms_on_which_nothing_could_be_lent_are_refused_with_what_to_write_instead() {
        for (line, said) in [
            (["--max", "0"], "too little"),
            (["--max", "10"], "such as 200GiB"),
            (["--keep-free", "0.1"], "10%"),
            (["--keep-free", "100%"], "leaves nothing"),
            (["--keep-free", "8000PiB"], "leaves nothing"),
            (["--label", ""], "such as room-12"),
            (["--label", "  "], "such as room-12"),
        ] {
            let why = terms(&line).expect_err("refused");
            assert!(why.contains(said), "{line:?}: {why}");
        }
        // A cap above the disk's size is how people say “all of it”.
        assert!(terms(&["--max", "1PiB", "--keep-free", "10%"]).is_ok());
        let labelled = terms(&["--max", "1GiB", "--label", " room-12 "]).expect("fine");
        assert_eq!(labelled.label.as_deref(), Some("room-12"));
    }
}
