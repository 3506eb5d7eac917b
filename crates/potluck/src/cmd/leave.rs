//! `potluck leave`: a member ends its own membership, and takes away what it has on this machine.
//!
//! A donor first gives back what it holds. Then the manager ends the membership, and that is written
//! down before anything here is removed: from then on the same command, run again, only cleans up.

use super::give_back::{self, Place};
use super::{Ending, lend};
use crate::args::{self, Caution, GiveBackPace};
use crate::confirm::confirm;
use crate::output::{Output, count};
use crate::running;
use crate::settings::{self, Settings};
use potluck_client::pool::Client;
use potluck_core::size::format_size;
use potluck_donor::{Owner, Removed, remove_store};
use potluck_wire::control::{self, GivingBack};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity, write_private};
use potluck_wire::token::Role;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Written once the membership has ended; what else is in the directory may be gone.
const LEAVING: &str = "leaving.json";
/// What else this program keeps in a donor's state directory.
const OWN_FILES: [&str; 3] = ["settings.toml", "daemon.json", "joining.json"];
/// How long a daemon may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A membership, and what this machine has of it.
#[derive(Debug, Serialize, Deserialize)]
struct Membership {
    about: About,
    owner: Owner,
    /// Directories that it lends.
    lent: Vec<PathBuf>,
    /// Where its identity and state are.
    #[serde(skip)]
    dir: PathBuf,
}

/// What leaving would do.
#[derive(Debug, Serialize)]
struct Plan<'a> {
    #[serde(flatten)]
    about: &'a About,
    left: bool,
    would_remove: Vec<&'a Path>,
    /// What a donor holds; files that are lost are lost with `--now` only.
    holds: Option<&'a GivingBack>,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Left<'a> {
    #[serde(flatten)]
    about: &'a About,
    left: bool,
    removed: Vec<&'a Path>,
    stays: Vec<Stays<'a>>,
}

#[derive(Debug, Serialize)]
struct Stays<'a> {
    path: &'a Path,
    why: String,
}

pub async fn run(
    args: args::Leave,
    settings: &Settings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let dir = match &args.state {
        Some(dir) => dir.clone(),
        None => only_identity(settings)?,
    };
    let (membership, ended) = match read_leaving(&dir)? {
        Some(membership) => (membership, true),
        None => (Membership::of(&dir)?, false),
    };
    let ended = ended || args.pool_is_gone;
    let client = match ended {
        true => None,
        false => {
            let identity = settings::load_identity(&dir)?;
            Some(Client::new(Env::system(), settings::guided(&identity, &dir)?))
        }
    };
    let donor = match &client {
        Some(client) if membership.about.role == Role::Donor => look(client).await?,
        _ => None,
    };
    if args.caution.dry_run {
        let would_remove = membership.here().collect();
        let (about, holds) = (&membership.about, donor.as_ref());
        output.result(&Plan { about, left: false, would_remove, holds }, |_| {
            membership.plan(donor.as_ref(), args.now)
        });
        return Ok(Ending::Done);
    }
    if !args.caution.yes {
        output.note(&membership.plan(donor.as_ref(), args.now));
        let question = format!("leave pool {}?", membership.about.pool);
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    if let Some(client) = &client {
        if let Some(held) = donor.as_ref().filter(|_| !args.now)
            && empty(held, client, output, shown).await? == Ending::Partial
        {
            return Ok(Ending::Partial);
        }
        end(&membership, client, &args, output).await?;
    }
    membership.clean_up(settings, output).await
}

/// The identity of this machine's donor, or that of its user, where there is one of them.
fn only_identity(settings: &Settings) -> Result<PathBuf, Failure> {
    let donor = settings.donor_dir();
    let pools = fs::read_dir(settings.pools_dir()).into_iter().flatten().flatten();
    let begun = pools.map(|entry| entry.path()).chain([donor.clone()]);
    // What was begun is ended first, also when half of it is gone.
    if let Some(begun) = begun.into_iter().find(|dir| dir.join(LEAVING).exists()) {
        return Ok(begun);
    }
    match (Identity::exists(&donor).then_some(donor), settings.joined_dir()) {
        (Some(one), Err(_)) => Ok(one),
        (None, found) => found,
        (Some(donor), Ok(user)) => {
            let (donor, user) = (donor.display(), user.display());
            let what = format!("this machine has a donor's identity, {donor}, and {user}");
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint(format!("say which is to leave: --state {donor}")))
        }
    }
}

fn read_leaving(dir: &Path) -> Result<Option<Membership>, Failure> {
    match fs::read(dir.join(LEAVING)) {
        Ok(text) => {
            let failed = |why: serde_json::Error| local(dir, "read", &why.into());
            let membership: Membership = serde_json::from_slice(&text).map_err(failed)?;
            Ok(Some(Membership { dir: dir.into(), ..membership }))
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(local(dir, "read", &why)),
    }
}

fn local(dir: &Path, doing: &str, why: &io::Error) -> Failure {
    let what = format!("cannot {doing} {}: {why}", dir.display());
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        .hint("mend that and run the same command again: it goes on from there")
}

/// What a donor holds; `None` when it is no member any more.
async fn look(client: &Client) -> Result<Option<GivingBack>, Failure> {
    match client.call(&give_back::look(&this_machine())).await {
        Ok(held) => Ok(Some(held)),
        Err(failure) if failure.code == code::REVOKED => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn this_machine() -> Place<'static> {
    Place { donor: None, name: "this machine", cancel: "potluck give-back --cancel".into() }
}

/// Moves what a donor holds to others, where anybody needs it.
async fn empty(
    held: &GivingBack,
    client: &Client,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    if held.to_move == 0 && held.lost_files == 0 {
        return Ok(Ending::Done);
    }
    if held.silent {
        let what = "this machine's donor is not heard, so nothing it holds can be moved";
        return Err(Failure::new(ErrorKind::Partial, code::STUCK, what).hint(
            "start it first (`potluck lend`), or see what is lost without: `potluck leave --now -n`",
        ));
    }
    let caution = Caution { dry_run: false, yes: true };
    let pace = GiveBackPace { now: false, no_wait: false, caution };
    give_back::empty(&this_machine(), pace, client, &output.of_step(), shown).await
}

/// Ends the membership, when its owner agreed to what is lost by that.
async fn end(
    membership: &Membership,
    client: &Client,
    args: &args::Leave,
    output: &Output,
) -> Result<(), Failure> {
    loop {
        let mut agreed = None;
        if args.now
            && membership.about.role == Role::Donor
            && let Some(loss) = look(client).await?.filter(|loss| loss.lost_files > 0)
        {
            if !args.caution.yes {
                output.note(&lost(&loss));
                let question = format!("lose {} for ever?", count(loss.lost_files, "file"));
                confirm(&question, "without --now all is moved to other donors first").await?;
            }
            agreed = loss.listing;
        }
        match client.call(&control::Leave { now: args.now, agreed }).await {
            Err(failure) if failure.code == code::NOT_AGREED && args.now && !args.caution.yes => {
                output.note(&failure.message);
            }
            // It ended before, and nobody could write that down.
            Err(failure) if failure.code != code::REVOKED => return Err(failure),
            Ok(_) | Err(_) => break,
        }
    }
    let text = serde_json::to_vec(membership).expect("plain data");
    write_private(&membership.dir.join(LEAVING), &text)
        .map_err(|why| local(&membership.dir, "write to", &why))
}

fn lost(loss: &GivingBack) -> String {
    let mut text = format!("{} would be lost for ever:", count(loss.lost_files, "file"));
    loss.lost.iter().for_each(|path| text.push_str(&format!("\n  {path}")));
    let more = loss.lost_files.saturating_sub(loss.lost.len() as u64);
    if more > 0 {
        text.push_str(&format!("\n  … and {more} more"));
    }
    text
}

impl Membership {
    /// By the identity in `dir`.
    fn of(dir: &Path) -> Result<Self, Failure> {
        if !Identity::exists(dir) {
            let what = format!("there is no identity in {}", dir.display());
            return Err(Failure::new(ErrorKind::NotFound, code::NOT_A_MEMBER, what).hint(
                "nothing is to be left; name the directory of an identity with --state DIR",
            ));
        }
        let identity = settings::load_identity(dir)?;
        let lent = match identity.about.role {
            Role::Donor => potluck_donor::lent_dirs(dir).map_err(|why| local(dir, "read", &why))?,
            Role::User | Role::Admin => Vec::new(),
        };
        let owner = lend::owner(&identity);
        Ok(Self { about: identity.about, owner, lent, dir: dir.into() })
    }

    fn who(&self) -> String {
        let About { pool, member, role, name, .. } = &self.about;
        format!("{role} {member} (“{name}”) of pool {pool}")
    }

    fn plan(&self, donor: Option<&GivingBack>, now: bool) -> String {
        let mut text = format!("the membership of {} ends for ever", self.who());
        match donor {
            Some(held) if now && held.lost_files > 0 => text.push_str(&format!("\n{}", lost(held))),
            Some(held) if now => {
                text.push_str(&format!(
                    "\nno file is lost; others make what {} held again",
                    format_size(held.held)
                ));
            }
            Some(held) if held.to_move > 0 => text.push_str(&format!(
                "\nwhat other donors lack of the {} here moves to them first; nothing is lost",
                format_size(held.held)
            )),
            _ => {}
        }
        for dir in self.here() {
            text.push_str(&format!("\nremoved here: {}", dir.display()));
        }
        text
    }

    /// What this machine has of it.
    fn here(&self) -> impl Iterator<Item = &Path> {
        self.lent.iter().chain([&self.dir]).map(PathBuf::as_path)
    }

    /// Stops the daemon, and removes what is Potluck's.
    async fn clean_up(&self, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
        stop_daemon(&self.dir, settings).await?;
        let (mut removed, mut stays) = (Vec::new(), Vec::new());
        for dir in &self.lent {
            match remove_store(dir, &self.owner) {
                Ok(Removed::All) => removed.push(dir.as_path()),
                Ok(Removed::OthersStay) => {
                    let why = "Potluck's files are gone; others are there, or it is a mount point";
                    stays.push(Stays { path: dir, why: why.into() });
                }
                Ok(Removed::NotAStore) => {
                    let why = "it holds no store; if its disk is not mounted, mount it and lend \
                               nothing there: what it holds is nobody's any more";
                    stays.push(Stays { path: dir, why: why.into() });
                }
                Err(why @ potluck_donor::StoreError::Io { .. })
                | Err(why @ potluck_donor::StoreError::Locked(_)) => {
                    return Err(lend::failed(why.into())
                        .hint("mend that and run the same command again: it goes on from there"));
                }
                Err(why) => stays.push(Stays { path: dir, why: why.to_string() }),
            }
        }
        let failed = |why: io::Error| local(&self.dir, "remove the identity in", &why);
        for file in potluck_donor::STATE_FILES.iter().chain(&OWN_FILES) {
            remove_file(&self.dir.join(file)).map_err(failed)?;
        }
        Identity::remove(&self.dir).map_err(failed)?;
        remove_file(&self.dir.join(LEAVING)).map_err(failed)?;
        match fs::remove_dir(&self.dir) {
            Ok(()) => removed.push(&self.dir),
            Err(_) => {
                let why = "the identity is gone; other files are there";
                stays.push(Stays { path: &self.dir, why: why.into() });
            }
        }
        let partial = !stays.is_empty();
        output.result(&Left { about: &self.about, left: true, removed, stays }, |left| {
            let mut text = format!("left: {} is no member any more", self.who());
            for path in &left.removed {
                text.push_str(&format!("\nremoved: {}", path.display()));
            }
            for Stays { path, why } in &left.stays {
                text.push_str(&format!("\nstays: {}: {why}", path.display()));
            }
            text
        });
        Ok(if partial { Ending::Partial } else { Ending::Done })
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Ends the daemon that runs on a state directory, if one does.
async fn stop_daemon(dir: &Path, settings: &Settings) -> Result<(), Failure> {
    let find = || running::find(dir).map_err(|why| local(dir, "look for a daemon in", &why));
    let Some(said) = find()? else { return Ok(()) };
    let manager = running::find(&settings.manager_dir()).ok().flatten();
    let beside = dir.parent().map(|above| above.join("manager"));
    let beside = beside.and_then(|dir| running::find(&dir).ok().flatten());
    if [manager, beside].into_iter().flatten().any(|manager| manager.pid == said.pid) {
        let what = "the donor runs in one process with the manager (`potluck up`)";
        return Err(Failure::new(ErrorKind::Partial, code::STUCK, what).hint(
            "the membership has ended. Stop that process, go on with `potluck manager` alone, and \
             run `potluck leave` again to take away what is left here",
        ));
    }
    if let Some(pid) = i32::try_from(said.pid).ok().and_then(Pid::from_raw) {
        // One that has ended meanwhile is what is asked for.
        let _ = kill_process(pid, Signal::TERM);
    }
    let ended = async {
        while find()?.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    tokio::time::timeout(STOP_PATIENCE, ended).await.unwrap_or_else(|_| {
        let what = format!("the daemon {} does not end", said.pid);
        Err(Failure::new(ErrorKind::Partial, code::STUCK, what)
            .hint("stop it, or the service that starts it again, and run `potluck leave` again"))
    })
}
