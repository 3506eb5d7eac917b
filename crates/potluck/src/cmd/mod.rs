//! The commands, with a file for each verb of the command line, and modules that several verbs share, such as
//! `several`, `donors` and `health`.

mod audit;
mod away;
mod cat;
mod ckpt;
pub mod completion;
mod cost;
mod cp;
mod demo;
mod donors;
mod drain;
mod du;
mod ending;
mod evict;
mod explain;
mod find_manager;
mod fsck;
mod gc;
mod give_back;
mod group;
pub mod hash;
mod health;
mod import;
mod inspect;
mod invite;
mod join;
mod key;
mod leave;
mod lend;
mod lookaside;
mod ls;
pub mod man;
mod manager;
mod members;
mod mkdir;
mod mount;
mod mounts;
mod mv;
mod new_pool;
mod nodes;
mod origins;
mod patterns;
mod pause;
mod pin;
mod policy;
mod quota;
mod repair;
mod reserve;
mod revert;
mod rm;
mod scrub;
mod serve;
mod service;
mod set;
mod several;
mod snapshot;
mod space;
mod stat;
mod status;
mod sync;
mod trash;
mod tree;
mod umount;
mod undelete;
mod unpublished;
mod up;
mod verify;
mod versions;
mod waiting;
mod write_shared;

pub use cp::place::bad_path;
pub use ending::Ending;
pub use patterns::is_pattern;

use crate::args::{self, Command};
use crate::command_settings::CommandSettings;
use crate::output::Output;
use crate::progress_bar;
use crate::signals;
use potluck_client::Pool;
use potluck_wire::control::DonorStatus;
use potluck_wire::error::Failure;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

/// Runs one command.
pub async fn run(
    command: Command,
    settings: &'static CommandSettings,
    output: &'static Output,
) -> Result<Ending, Failure> {
    let shown = settings.progress && output.wants_progress();
    let watched = |client: Pool| client.watched(progress_bar::waits(shown, output));
    let command = match command {
        Command::Lend(args) if args.remove => match leave::of_directory(&args, settings)? {
            Some(leave) => Command::Leave(leave),
            None => return lend::forget(&args, settings, output).await,
        },
        Command::Lend(args::LendArgs { action: Some(args::LendAction::Status(asked)), .. }) => {
            return until_stopped_alone(lend::status::run(asked, settings, output)).await;
        }
        Command::Lend(args) if args.calibrate => {
            return until_stopped_alone(lend::calibrate::run(args, settings, output, shown)).await;
        }
        // The owner of a machine that only lends asks this first.
        Command::Status(asked) if settings.only_lends() => {
            let asked = args::LendStatusArgs { check: asked.check, state: None };
            return until_stopped_alone(lend::status::run(asked, settings, output)).await;
        }
        Command::Nodes(args::NodesArgs::Ls(asked)) if settings.only_lends() => {
            let list = |donors: Vec<_>, output: &Output| nodes::list(donors, &asked, output);
            return until_stopped_alone(of_own_donors(settings, output, list)).await;
        }
        Command::Scrub(args::ScrubArgs::Status) if settings.only_lends() => {
            let tell = |donors: Vec<_>, output: &Output| scrub::status(&donors, output);
            return until_stopped_alone(of_own_donors(settings, output, tell)).await;
        }
        command => command,
    };
    match command {
        Command::Demo(args) => demo::run(args, output).await,
        Command::Up(args) => up::run(args, settings, output).await,
        Command::Manager(args) => manager::run(args, settings, output).await,
        Command::Lend(args) => lend::run(args, settings, output).await,
        Command::Join(args) => join::run(args, settings, output).await,
        Command::Mount(args) => {
            let client = origins::reached(&watched(settings.client()?), settings);
            mount::run(args, &client, settings, output).await
        }
        Command::Lookaside(args) => {
            until_stopped_alone(lookaside::run(args, settings, output, shown)).await
        }
        Command::Mounts => until_stopped_alone(mounts::run(settings, output)).await,
        Command::Umount(args) => until_stopped_alone(umount::run(&args, settings, output)).await,
        Command::FindManager(args) => find_manager::run(args, settings, output).await,
        Command::Serve(args) => serve::run(args, settings, output).await,
        Command::Set(args) => set::run(args, settings, output).await,
        Command::Service(args) => service::run(args, settings, output).await,
        Command::GiveBack(args) => {
            let state = donor_state(args.state.as_ref(), settings)?;
            let donors = own_donors(&state, args.dir.as_deref(), settings, &watched)?;
            let client = &donors[0].1;
            until_stopped(client, give_back::run(args, &state, client, output, shown)).await
        }
        Command::Pause(args) => {
            let state = donor_state(args.state.as_ref(), settings)?;
            until_stopped_alone(pause::pause(args, &state, settings, output)).await
        }
        Command::Cost(args) => {
            let state = donor_state(args.state.as_ref(), settings)?;
            cost::run(args, &state, output)
        }
        Command::Inspect(args) => {
            let state = donor_state(args.state.as_ref(), settings)?;
            until_stopped_alone(inspect::run(args, &state, settings, output)).await
        }
        Command::Resume(args) => {
            let state = donor_state(args.state.as_ref(), settings)?;
            until_stopped_alone(pause::resume(args, &state, output)).await
        }
        Command::Drain(args) if args.donor.is_none() => {
            let state = donor_state(args.state.as_ref(), settings)?;
            let donors = own_donors(&state, args.dir.as_deref(), settings, &watched)?;
            until_stopped(&donors[0].1, drain::own(args, &state, &donors, output, shown)).await
        }
        Command::Leave(args) => {
            until_stopped_alone(leave::run(args, settings, output, shown)).await
        }
        Command::Away(args) => {
            let state = donor_state(args.state.as_ref(), settings)?;
            let donors = own_donors(&state, None, settings, &watched)?;
            until_stopped(&donors[0].1, away::run(args, &donors, output)).await
        }
        command => {
            let mut client = watched(settings.client()?);
            let mut trees = None;
            if matches!(command, Command::Cp(_) | Command::Sync(_) | Command::Cat(_)) {
                client = origins::reached(&client, settings);
                let (looking, looked_into) = lookaside::looking(client, settings);
                (client, trees) = (looking, Some(looked_into));
            }
            let interrupted = match &command {
                Command::Cp(args) => Some(cp::when_interrupted(args)),
                Command::Import(_) => Some(import::WHEN_INTERRUPTED),
                Command::Sync(_) => Some(sync::WHEN_INTERRUPTED),
                _ => None,
            };
            // The work runs as a task on a worker thread, which also serves its connections, so that their data
            // wakes no other thread.
            let ending = tokio::spawn(async move {
                let work = with_client(command, &client, settings, output, shown);
                until_stopped(&client, work).await
            });
            let ending = ending.await.unwrap_or_else(|why| resume_unwind(why.into_panic()));
            if let Some(trees) = trees {
                lookaside::count(&trees, &lookaside::list(settings));
            }
            if let (Ok(Ending::Interrupted), Some(text)) = (&ending, interrupted) {
                output.note(text);
            }
            ending
        }
    }
}

/// Returns the state directory of this machine's donor: the one that was named, or the default.
fn donor_state(named: Option<&PathBuf>, settings: &CommandSettings) -> Result<PathBuf, Failure> {
    lend::absolute(named.unwrap_or(&settings.donor_dir()))
}

/// Returns the donors of this machine's daemon, or only that of the lent directory `dir`, each with a client that acts
/// as it; at least one.
fn own_donors(
    state: &Path,
    dir: Option<&Path>,
    settings: &CommandSettings,
    watched: &impl Fn(Pool) -> Pool,
) -> Result<Vec<(lend::OwnDonor, Pool)>, Failure> {
    let donors = lend::donors_of(state, dir)?.into_iter();
    donors
        .map(|donor| {
            let client = settings.donor_client(Some(&donor.state))?;
            Ok((donor, watched(client)))
        })
        .collect()
}

/// Has `tell` show this machine's donors, on a machine that only lends: a donor sees no others.
async fn of_own_donors(
    settings: &CommandSettings,
    output: &Output,
    tell: impl Fn(Vec<DonorStatus>, &Output),
) -> Result<Ending, Failure> {
    tell(lend::status::own_donors(settings).await?, output);
    output.note("these are this machine's own: a donor sees no others");
    Ok(Ending::Done)
}

/// Does `work` until the user stops it, and then drops it. A second request to stop ends the process at once.
async fn until_stopped_alone(
    work: impl Future<Output = Result<Ending, Failure>>,
) -> Result<Ending, Failure> {
    signals::second_stop_ends(signals::INTERRUPTED);
    tokio::select! {
        ending = work => ending,
        () = signals::asked_to_stop() => Ok(Ending::Interrupted),
    }
}

/// Does `work` of a client until it ends or the user stops it, and then tells the manager what the client leaves open.
async fn until_stopped(
    client: &Pool,
    work: impl Future<Output = Result<Ending, Failure>>,
) -> Result<Ending, Failure> {
    let ending = until_stopped_alone(work).await;
    client.settle().await;
    if matches!(ending, Ok(ending) if ending != Ending::Interrupted) {
        client.remember_donors().await;
    }
    ending
}

async fn with_client(
    command: Command,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    match command {
        Command::Cp(args) => cp::run(args, client, output, shown).await,
        Command::Sync(args) => sync::run(args, client, output, shown).await,
        Command::Cat(args) => cat::run(args, client, output).await,
        Command::Evict(args) => evict::evict(args, client, output).await,
        Command::Warm(args) => evict::warm(args, client, settings, output, shown).await,
        Command::Import(args) => import::run(args, client, settings, output, shown).await,
        Command::Ls(args) => ls::run(args, client, output).await,
        Command::Stat(args) => stat::run(args, client, output).await,
        Command::Explain(args) => explain::run(args, client, output, shown).await,
        Command::Mv(args) => mv::run(args, client, output).await,
        Command::Rm(args) => rm::run(args, client, output).await,
        Command::Versions(args) => versions::run(args, client, output).await,
        Command::Revert(args) => revert::run(args, client, output).await,
        Command::Undelete(args) => undelete::run(args, client, output).await,
        Command::Pin(args) => pin::run(args, true, client, output).await,
        Command::Unpin(args) => pin::run(args, false, client, output).await,
        Command::Snapshot(args) => snapshot::run(args, client, output).await,
        Command::Trash(args) => trash::run(args, client, output).await,
        Command::Mkdir(args) => mkdir::run(args, client, output).await,
        Command::Du(args) => du::run(args, client, output).await,
        Command::Tree(args) => tree::run(args, client, output).await,
        Command::Space(args) => space::run(args, client, output, shown).await,
        Command::Audit(args) => audit::run(args, client, output).await,
        Command::Ckpt(args) => ckpt::run(args, client, settings, output).await,
        Command::WriteShared(args) => write_shared::run(args, client, output).await,
        Command::Quota(args) => quota::run(args, client, output).await,
        Command::Reserve(args) => reserve::run(args, client, output).await,
        Command::Key(args) => key::run(args, client, output).await,
        Command::Group(args) => group::run(args, client, output).await,
        Command::Policy(args) => policy::run(args, client, output).await,
        Command::Verify(args) => verify::run(args, client, output, shown).await,
        Command::Fsck(args) => fsck::run(args, client, output, shown).await,
        Command::Repair(args) => repair::run(args, client, output, shown).await,
        Command::Scrub(args) => scrub::run(args, client, output).await,
        Command::Gc(args) => gc::run(args, client, output).await,
        Command::Nodes(args) => nodes::run(args, client, output).await,
        Command::Drain(args) => drain::of_pool(args, client, output, shown).await,
        Command::Status(args) => status::run(args, client, output).await,
        Command::Invite(args) => invite::run(args, client, settings, output).await,
        Command::Members(args) => members::run(args, client, settings, output).await,
        Command::Demo(_)
        | Command::Up(_)
        | Command::Manager(_)
        | Command::Lend(_)
        | Command::Serve(_)
        | Command::Set(_)
        | Command::Service(_)
        | Command::GiveBack(_)
        | Command::Pause(_)
        | Command::Resume(_)
        | Command::Cost(_)
        | Command::Inspect(_)
        | Command::Away(_)
        | Command::Leave(_)
        | Command::Join(_)
        | Command::Mount(_)
        | Command::Mounts
        | Command::Umount(_)
        | Command::FindManager(_)
        | Command::Completion(_)
        | Command::Hash(_)
        | Command::Lookaside(_)
        | Command::Man(_) => unreachable!("not a client's command"),
    }
}
