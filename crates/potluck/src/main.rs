//! Potluck: pools the spare disk of machines that people already have.

mod args;
mod cmd;
mod command_settings;
mod confirm;
mod enrolment;
mod freed_memory;
mod keys;
mod local_time;
mod log;
mod mount_helper;
mod output;
mod progress_bar;
mod ready;
mod running;
mod settings_file;
mod signals;
mod systemd;

use args::{Args, Command};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use output::Output;
use potluck_core::path::{BadPath, PoolPath};
use potluck_core::text::is_unseen;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::open_files;
use std::error::Error as _;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    potluck_wire::tls::install_provider();
    if let Some(why) = mount_helper::run_if_called() {
        output::say(format!("mount.potluck: {why}"));
        return ErrorKind::Usage.exit_code().into();
    }
    if std::env::args_os().skip(1).eq(["help", "all"]) {
        Output::for_people().answer(&(), |()| args::all_commands());
        return ExitCode::SUCCESS;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(why) => return refuse(&why),
    };
    log::begin(&args);
    allow_open_files(&args.command);
    freed_memory::give_back(&args.command);
    let output: &'static Output = Box::leak(Box::new(Output::new(&args.global)));
    // These commands need no home directory, no configuration and no pool.
    match &args.command {
        Command::Completion(args) => return end(cmd::completion::run(args), output),
        Command::Man(args) => return end(cmd::man::run(args, output), output),
        Command::Hash(args) => return end(cmd::hash::run(args, output), output),
        _ => {}
    }
    let settings = match command_settings::CommandSettings::resolve(&args.global) {
        Ok(settings) => &*Box::leak(Box::new(settings)),
        Err(failure) => return output.fail(&failure),
    };
    let runtime = match runtime_for(&args.command) {
        Ok(runtime) => runtime,
        Err(error) => {
            let what = format!("cannot start: {error}");
            return output.fail(&Failure::new(ErrorKind::Other, "POT-E081", what));
        }
    };
    let done = runtime.block_on(cmd::run(args.command, settings, output));
    // Threads that hang in a system call must not keep the process from ending.
    runtime.shutdown_background();
    end(done, output)
}

/// Returns whether the command runs a daemon that other members of the pool connect to.
fn is_server(command: &Command) -> bool {
    matches!(command, Command::Manager(_) | Command::Lend(_) | Command::Up(_) | Command::Serve(_))
}

/// Raises the limit of open files and connections as far as the system allows, and warns if a server has too few.
fn allow_open_files(command: &Command) {
    let limit = open_files::raise();
    if is_server(command) && limit < open_files::ENOUGH {
        tracing::warn!(
            "this process may have {limit} files and connections open at once: with hundreds of \
             members, some will be turned away; let it have {} (LimitNOFILE= of its unit, or ulimit -Hn)",
            open_files::ENOUGH
        );
    }
}

/// Returns the exit code of a command, and prints its failure.
fn end(done: Result<cmd::Ending, Failure>, output: &Output) -> ExitCode {
    match done.and_then(|ending| output.is_written().map(|()| ending)) {
        Ok(cmd::Ending::Done) => ExitCode::SUCCESS,
        Ok(cmd::Ending::Partial) => ErrorKind::Partial.exit_code().into(),
        Ok(cmd::Ending::Said(kind)) => kind.exit_code().into(),
        Ok(cmd::Ending::Interrupted) => signals::INTERRUPTED.into(),
        Err(failure) => output.fail(&explained(failure)),
    }
}

/// Shows help, or says what is wrong with the arguments. With `--json`, and for a bad path in the pool, that has the
/// form of any other failure.
fn refuse(why: &clap::Error) -> ExitCode {
    let mut given = std::env::args_os().skip(1).take_while(|arg| arg != "--");
    let to_programs = given.any(|arg| arg == "--json");
    let output = if to_programs { Output::for_programs() } else { Output::for_people() };
    let source = why.source().and_then(|source| source.downcast_ref::<BadPath>());
    if let Some(path) = source {
        return output.fail(&in_order(cmd::bad_path(path.clone())));
    }
    if let Some(failure) = unknown_verb(why) {
        return output.fail(&failure);
    }
    // What is given may be a name that a shell filled in, which clap would show as it is.
    let is_harmless = |arg: OsString| !arg.to_string_lossy().contains(is_unseen);
    if !why.use_stderr() || !to_programs && std::env::args_os().all(is_harmless) {
        why.exit();
    }
    let text = why.render().to_string();
    // The lines up to the first empty one say what is wrong; then comes how to call the command.
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let what = lines.collect::<Vec<_>>().join(" ");
    let what = what.trim_start_matches("error: ");
    let failure = Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what);
    let command = called(std::env::args_os().skip(1));
    output.fail(&failure.hint(format!("`{command} --help` shows how it is called")))
}

/// Adds the right order to a failure of a mount that names the directory before the path in the pool.
fn in_order(failure: Failure) -> Failure {
    let has_pool_path = || {
        let mut given = std::env::args_os().skip(1);
        given.any(|arg| arg.to_str().is_some_and(PoolPath::is_pool_path))
    };
    match called(std::env::args_os().skip(1)) == "potluck mount" && has_pool_path() {
        true => failure.hint("the path in the pool comes first: `potluck mount pot://SPACE DIR`"),
        false => failure,
    }
}

/// Returns the failure of a command that other systems have, with what does the same here; `None` for any other error.
fn unknown_verb(why: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(verb)) = why.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let above = called(std::env::args_os().skip(1));
    let command = format!("{above} {verb}");
    let command = command.strip_prefix("potluck ")?;
    let what = format!("there is no command “{command}”");
    Some(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(args::meant(command)?))
}

/// Adds to the failure to find a path with a pattern in it that patterns are not expanded there.
fn explained(failure: Failure) -> Failure {
    let is_pattern = |arg: &OsString| {
        let path = arg.to_str().filter(|arg| PoolPath::is_pool_path(arg));
        path.is_some_and(cmd::is_pattern)
    };
    match failure.code == code::NO_ENTRY && std::env::args_os().skip(1).any(|arg| is_pattern(&arg)) {
        true => failure.hint(
            "in `ls`, `du`, `cat`, `cp`, `mv` and `rm` * and ? match in the last name of a path, and nowhere else: list \
             what they would match, and name it, or the directory with -r",
        ),
        false => failure,
    }
}

/// Returns the command that these arguments name, such as `potluck space create`, as far as there is such a command.
fn called(args: impl Iterator<Item = OsString>) -> String {
    let program = Args::command();
    let (mut called, mut command) = (program.get_name().to_owned(), &program);
    for arg in args {
        if let Some(below) = command.find_subcommand(&arg) {
            called = format!("{called} {}", below.get_name());
            command = below;
        }
    }
    called
}

/// The size in bytes of the stack of the runtime's threads, on which commands run: as much as the system usually gives
/// the main thread. Only what is used takes memory.
const STACK: usize = 8 << 20;

/// Makes the runtime for a command. A donor needs one thread, because its bulk connections have threads of their
/// own. Other commands hash, encrypt and serve sockets at the same time.
fn runtime_for(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match command {
        Command::Lend(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
    builder.worker_threads(workers).thread_stack_size(STACK).enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_line_with_a_mistake_is_found() {
        for (line, command) in [
            ("--jason ls", "potluck ls"),
            ("sl", "potluck"),
            ("--json space create --wide 3 lab", "potluck space create"),
            ("space destroy lab", "potluck space"),
            ("cp --recursif mv pot://lab/", "potluck cp"),
        ] {
            assert_eq!(called(line.split(' ').map(OsString::from)), command, "{line}");
        }
    }
}
