//! One file a verb.

mod cat;
mod cp;
mod demo;
mod du;
mod invite;
mod join;
mod lend;
mod ls;
mod manager;
mod mkdir;
mod mv;
mod rm;
mod space;
mod stat;
mod status;
mod tree;
mod up;

use crate::args::Command;
use crate::output::Output;
use crate::ready;
use crate::settings::Settings;
use potluck_client::pool::Client;
use potluck_wire::error::Failure;

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All was done.
    Done,
    /// Some of it was; what was not has been said.
    Partial,
    /// Its user stopped it.
    Interrupted,
}

/// Runs one command.
pub async fn run(
    command: Command,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    match command {
        Command::Demo(args) => demo::run(args, output).await,
        Command::Up(args) => up::run(args, settings, output).await,
        Command::Manager(args) => manager::run(args, settings, output).await,
        Command::Lend(args) => lend::run(args, settings, output).await,
        Command::Join(args) => join::run(args, settings, output).await,
        command => as_client(command, settings, output).await,
    }
}

/// Runs a command that acts as a client of the pool. When its user stops it, what it leaves open
/// is told to the manager.
async fn as_client(
    command: Command,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let client = settings.client()?;
    let ending = tokio::select! {
        ending = with_client(command, &client, settings, output) => ending,
        () = ready::asked_to_stop() => Ok(Ending::Interrupted),
    };
    client.settle().await;
    ending
}

async fn with_client(
    command: Command,
    client: &Client,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let shown = settings.progress && output.wants_progress();
    match command {
        Command::Cp(args) => cp::run(args, client, output, shown).await,
        Command::Cat(args) => cat::run(args, client).await,
        Command::Ls(args) => ls::run(args, client, output).await,
        Command::Stat(args) => stat::run(args, client, output).await,
        Command::Mv(args) => mv::run(args, client, output).await,
        Command::Rm(args) => rm::run(args, client, output).await,
        Command::Mkdir(args) => mkdir::run(args, client, output).await,
        Command::Du(args) => du::run(args, client, output).await,
        Command::Tree(args) => tree::run(args, client, output).await,
        Command::Space(args) => space::run(args, client, output).await,
        Command::Status => status::run(client, output).await,
        Command::Invite(args) => invite::run(args, client, settings, output).await,
        Command::Demo(_)
        | Command::Up(_)
        | Command::Manager(_)
        | Command::Lend(_)
        | Command::Join(_) => unreachable!("not a client's command"),
    }
}
