//! Plays a member that does what it may not, beside the clients. It is a program of its own, which speaks the wire
//! itself.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use super::counts::Counts;
use super::plan::Space;
use super::pool::{Pool, Ran, Under};

/// The space in which the member may write.
pub const OWN_SPACE: &str = "hostile";
/// The number of acts that its program does in one run.
const ACTS: u64 = 12;
/// The name under which those of its attempts are counted that came to nothing.
pub const REFUSED: &str = "attempts of a hostile member that came to nothing";

/// A user that joined the pool, and the program that acts for it.
pub struct Hostile {
    program: PathBuf,
    identity: PathBuf,
}

impl Hostile {
    /// Returns the path of the program that was built with `potluck`, if it is there.
    pub fn program(potluck: &Path) -> Option<PathBuf> {
        let program = potluck.parent()?.join("examples/hostile_member");
        program.is_file().then_some(program)
    }

    /// Lets the member join a pool, and makes the one space in which it has rights.
    pub fn join(program: PathBuf, pool: &mut Pool) -> Result<Self> {
        let identity = pool.dir().join("hostile");
        let (token, dir) = (pool.invite("user")?, identity.display().to_string());
        pool.run(&["join", &token, "--name", "hostile", "--state", &dir])?.ok()?;
        pool.run(&["space", "create", OWN_SPACE, "--plain", "--chunk-size", "65536"])?.ok()?;
        pool.run(&["space", "grant", OWN_SPACE, "hostile", "list", "read", "write"])?.ok()?;
        Ok(Self { program, identity })
    }

    /// Starts a run of its program, which does what `seed` decides.
    pub fn begin(&self, pool: &mut Pool, seed: u64, others: &[Space]) -> Result<Under> {
        let mut args = vec!["--seed".to_owned(), seed.to_string()];
        args.extend(["--identity".to_owned(), self.identity.display().to_string()]);
        args.extend([
            "--acts".to_owned(),
            ACTS.to_string(),
            "--own".to_owned(),
            OWN_SPACE.to_owned(),
        ]);
        args.extend(others.iter().flat_map(|space| ["--other".to_owned(), space.name.clone()]));
        pool.begin_program(&self.program, &args)
    }
}

/// Judges a run of the member: an error if it was let do anything that it may not, else what it tried.
pub fn judge(ran: Ran, counts: &mut Counts) -> Result<String> {
    ensure!(
        ran.code == 0 || ran.code == 1,
        "`{}` ended with {}: {}",
        ran.command,
        ran.code,
        ran.stderr
    );
    let told = ran.json()?;
    let let_through = told["let_through"].as_array().map_or(1, Vec::len);
    if ran.code != 0 || let_through > 0 {
        bail!("X2/X5 is broken: a hostile member was let do what it may not: {told}");
    }
    counts.add(REFUSED, told["refused"].as_u64().unwrap_or_default());
    counts.add(
        "attempts of a hostile member that nobody answered",
        told["unanswered"].as_u64().unwrap_or_default(),
    );
    Ok(told["acts"].to_string())
}
