//! The help of the program as a whole: commands in groups by what people come for, and what to type instead of commands
//! that other systems have.

use super::{Command, GLOBAL};
use clap::Subcommand;
use std::fmt::Write;

/// The groups of commands, each command in one.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Begin", &["demo", "up", "invite", "join"]),
    (
        "Files",
        &[
            "cp",
            "sync",
            "ls",
            "cat",
            "stat",
            "explain",
            "du",
            "tree",
            "mv",
            "rm",
            "mkdir",
            "hash",
            "import",
            "warm",
            "evict",
            "lookaside",
            "mount",
            "mounts",
            "umount",
            "serve",
            "write-shared",
        ],
    ),
    (
        "History and checkpoints",
        &["versions", "revert", "undelete", "trash", "snapshot", "ckpt", "pin", "unpin"],
    ),
    (
        "My disk",
        &["lend", "pause", "resume", "cost", "inspect", "give-back", "drain", "away", "leave"],
    ),
    ("Safety", &["status", "verify", "fsck", "repair", "scrub", "gc"]),
    (
        "Spaces: who may do what, and how much",
        &["space", "policy", "quota", "reserve", "group", "key"],
    ),
    ("The pool", &["nodes", "members", "audit", "manager"]),
    ("This machine", &["set", "service", "find-manager", "completion", "man"]),
];

/// Commands of other systems, each with what does the same here.
const MEANT: [(&[&str], &str); 25] = [
    (&["put", "upload", "push", "store", "add"], "`potluck cp FILE pot://SPACE/` stores a file"),
    (&["get", "download", "fetch", "pull"], "`potluck cp pot://SPACE/FILE .` brings a file here"),
    (&["copy"], "`potluck cp -r DIR pot://SPACE/` copies a tree"),
    (&["rsync", "mirror"], "`potluck sync DIR pot://SPACE/DIR` copies what differs"),
    (
        &["find", "search", "locate"],
        "`potluck ls -R pot://SPACE` lists everything below; `potluck tree` shows it",
    ),
    (&["dir", "list"], "`potluck ls` lists"),
    (
        &["share", "chmod", "chown", "acl", "grant"],
        "`potluck space grant SPACE WHO RIGHT…` lets others in",
    ),
    (&["revoke", "unshare"], "`potluck space revoke SPACE WHO` shuts others out"),
    (
        &["df", "free", "usage"],
        "`potluck status` shows what is free, `potluck du` what files take, `potluck lend status` what is lent here",
    ),
    (
        &["delete", "del", "remove", "unlink", "erase"],
        "`potluck rm` removes files, `potluck space rm` a space, `potluck nodes rm` a donor",
    ),
    (&["rmdir"], "`potluck rm -r pot://SPACE/DIR` removes a directory"),
    (&["unmount", "eject"], "`potluck umount DIR` unmounts"),
    (&["rename", "move"], "`potluck mv` moves and renames"),
    (
        &["ln", "link", "symlink"],
        "links are made in a mount: `potluck mount pot://SPACE DIR`, then `ln -s`",
    ),
    (
        &["restore", "rollback", "undo"],
        "`potluck revert PATH` makes an old version of a file current, `potluck undelete` brings removed files back, `potluck manager restore` brings a lost manager back",
    ),
    (
        &["backup"],
        "`potluck manager backup FILE` backs the catalog up, `potluck snapshot create` keeps a directory as it is",
    ),
    (
        &["evacuate", "empty", "nodes drain", "nodes leave"],
        "`potluck drain` moves all that a donor holds to others, `potluck leave` ends this machine's membership after that",
    ),
    (
        &["start", "init", "create", "run"],
        "`potluck up` starts a pool here; `potluck space create` makes a space",
    ),
    (
        &["stop", "down", "shutdown"],
        "Ctrl-C ends a daemon, `potluck service uninstall` one that systemd runs, `potluck leave` a membership",
    ),
    (&["login", "connect", "register"], "`potluck join -` joins a pool with a token"),
    (
        &["token", "adduser", "user", "users"],
        "`potluck invite` makes a token for a person or machine, `potluck members` lists them",
    ),
    (&["node", "donors", "donor", "peers", "servers"], "`potluck nodes ls` lists the donors"),
    (
        &["info", "health", "top", "check", "doctor", "ping"],
        "`potluck status` says how the pool is, `potluck verify` how a file is",
    ),
    (
        &["config", "configure", "settings"],
        "`potluck set` shows and changes the settings of daemons",
    ),
    (&["shared"], "`potluck write-shared` writes one file from several machines"),
];

/// Returns what to type instead of a command that there is not, if that is known.
pub fn meant(verb: &str) -> Option<&'static str> {
    MEANT.iter().find(|(verbs, _)| verbs.contains(&verb)).map(|(_, instead)| *instead)
}

/// Returns the template of the program's own help, with the commands in their groups.
pub fn template() -> String {
    let all = Command::augment_subcommands(clap::Command::new("potluck"));
    let about = |verb: &str| {
        let found = all.get_subcommands().find(|one| one.get_name() == verb);
        let about = found.and_then(clap::Command::get_about).map(ToString::to_string);
        about.unwrap_or_default()
    };
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, verbs) in GROUPS {
        let _ = write!(text, "\n{group}:\n");
        for verb in verbs {
            let _ = writeln!(text, "  {verb:<13} {}", about(verb));
        }
    }
    text + "\n`potluck COMMAND --help` says more, with examples; `potluck help all` lists all commands.\n\n"
        + GLOBAL
        + ":\n{options}{after-help}"
}

/// Returns all commands in their groups, each with those below it.
pub fn all_commands() -> String {
    let all = Command::augment_subcommands(clap::Command::new("potluck"));
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        let _ = writeln!(text, "{group}:");
        let found = verbs.iter().filter_map(|verb| all.find_subcommand(verb));
        found.for_each(|command| tell(command, "potluck", &mut text));
        text.push('\n');
    }
    text
}

/// Adds a line for a command, and for each below it.
fn tell(command: &clap::Command, above: &str, text: &mut String) {
    let called = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(text, "  {called:<26} {about}");
    command.get_subcommands().for_each(|below| tell(below, &called, text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let all = Command::augment_subcommands(clap::Command::new("potluck"));
        let all: BTreeSet<_> = all.get_subcommands().map(|one| one.get_name().to_owned()).collect();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        assert_eq!(grouped.iter().map(|it| it.to_string()).collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len(), "none is in two");
        assert!(
            grouped.iter().all(|verb| meant(verb).is_none()),
            "what there is stands for itself"
        );
    }
}
