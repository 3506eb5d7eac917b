//! `mount.potluck`: the name under which mount(8) calls this program for a line of /etc/fstab.
//!
//! Its arguments become those of `potluck mount`, which then runs in this process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The name of the link by which mount(8) finds this program.
const NAME: &str = "mount.potluck";
/// Options for mount(8), systemd or the kernel that are accepted and have no effect on a mount of a pool.
const IGNORED: [&str; 19] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "nodev",
    "nosuid",
    "exec",
    "async",
    "atime",
    "noatime",
    "relatime",
    "nodiratime",
];
/// Options with a value that become options of `potluck mount`.
const WITH_VALUE: [&str; 8] = [
    "pool",
    "spool_max",
    "cache_max",
    "retry_for",
    "write_protocol",
    "write_window",
    "temporary_size",
    "close",
];
const USAGE: &str = "usage: mount.potluck pot://SPACE[/DIR] DIR [-fnsv] [-o OPTION,…]\n  options: ro, noexec, \
                     again, allow_other, pool=NAME|DIR, spool_max=SIZE, cache_max=SIZE, retry_for=TIME, \
                     write_protocol=NAME, write_window=SIZE, temporary_size=SIZE, close=LEVEL; those of mount(8) and systemd are ignored";

/// Runs `potluck mount` in the place of this process if mount(8) called it. Returns `None` if it did not, and what is
/// wrong if the mount cannot be run.
pub fn run_if_called() -> Option<String> {
    let mut args = std::env::args_os();
    let called = args.next()?;
    if Path::new(&called).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    let args: Vec<OsString> = args.collect();
    let translated = match translated(&args) {
        Ok(Some(translated)) => translated,
        Ok(None) => std::process::exit(0),
        Err(why) => return Some(format!("{why}\n{USAGE}")),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(why) => return Some(format!("cannot find the program: {why}")),
    };
    let why = Command::new(program).args(translated).exec();
    Some(format!("cannot run potluck: {why}"))
}

/// Translates the arguments of a helper of mount(8) to those of `potluck`; `None` if nothing is to be done (`-f`).
fn translated(args: &[OsString]) -> Result<Option<Vec<OsString>>, String> {
    let mut words = Vec::new();
    let mut flags: Vec<OsString> = Vec::new();
    let (mut is_sloppy, mut is_fake) = (false, false);
    let mut options = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_bytes() {
            [b'-', letters @ ..] if !letters.is_empty() => {
                for letter in letters {
                    match letter {
                        b's' => is_sloppy = true,
                        b'f' => is_fake = true,
                        b'v' => flags.push("-v".into()),
                        b'n' => {}
                        b'o' => options.push(value(&mut args, *letter)?),
                        // Type and namespace are ignored: mount(8) has entered the namespace already.
                        b't' | b'N' => drop(value(&mut args, *letter)?),
                        other => return Err(format!("unknown flag -{}", char::from(*other))),
                    }
                }
            }
            _ => words.push(arg.clone()),
        }
    }
    let [path, dir] = <[OsString; 2]>::try_from(words)
        .map_err(|words| format!("two arguments are needed, and there are {}", words.len()))?;
    for list in options {
        let list = list.to_str().ok_or("options must be in UTF-8")?;
        for option in list.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value))) {
                ("ro", None) => flags.push("--read-only".into()),
                ("noexec", None) => flags.push("--no-exec".into()),
                ("again", None) => flags.push("--again".into()),
                ("allow_other", None) => flags.push("--allow-other".into()),
                (key, Some(value)) if WITH_VALUE.contains(&key) => {
                    flags.push(format!("--{}={value}", key.replace('_', "-")).into());
                }
                (key, _) if IGNORED.contains(&key) => {}
                (key, _) if key.starts_with("x-") || key == "comment" => {}
                _ if is_sloppy => {}
                _ => return Err(format!("unknown option “{option}”")),
            }
        }
    }
    if is_fake {
        return Ok(None);
    }
    let is_verbose = flags.iter().any(|flag| flag == "-v");
    let mut translated = vec![OsString::from("mount")];
    translated.extend((!is_verbose).then(|| OsString::from("--quiet")));
    translated.extend(flags);
    translated.extend([OsString::from("--"), path, dir]);
    Ok(Some(translated))
}

fn value<'a>(
    args: &mut impl Iterator<Item = &'a OsString>,
    letter: u8,
) -> Result<OsString, String> {
    args.next().cloned().ok_or_else(|| format!("-{} needs a value", char::from(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(line: &str) -> Result<Option<String>, String> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let joined =
            |args: Vec<OsString>| args.join(OsStr::new(" ")).to_string_lossy().into_owned();
        translated(&args).map(|args| args.map(joined))
    }

    #[test]
    fn fstab_options_become_arguments() {
        let line = "pot://lab /mnt/lab -v -o rw,noauto,_netdev,x-systemd.automount";
        assert_eq!(translate(line), Ok(Some("mount -v -- pot://lab /mnt/lab".into())));
        let line = "pot://lab /m -o ro,again,allow_other,pool=/etc/potluck/pools/lab,spool_max=4GiB,write_protocol=hybrid";
        let expected = "mount --quiet --read-only --again --allow-other --pool=/etc/potluck/pools/lab \
                        --spool-max=4GiB --write-protocol=hybrid -- pot://lab /m";
        assert_eq!(translate(line), Ok(Some(expected.into())));
        // mount(8) puts the options of its own command line after those of fstab.
        let line = "pot://lab /m -o close=memory,close=pool";
        let expected = "mount --quiet --close=memory --close=pool -- pot://lab /m";
        assert_eq!(translate(line), Ok(Some(expected.into())));
        assert_eq!(translate("pot://lab /m -fnv -t potluck"), Ok(None));
        assert_eq!(translate("pot://lab /m -o ra").expect_err("?"), "unknown option “ra”");
        assert_eq!(
            translate("pot://lab /m -s -o ra"),
            Ok(Some("mount --quiet -- pot://lab /m".into()))
        );
        for flag in ["-o", "-t", "-N"] {
            let why = translate(&format!("pot://lab {flag}")).expect_err("no value");
            assert!(why.contains(&format!("{flag} needs")), "{why}");
        }
        assert!(translate("pot://lab").expect_err("no directory").contains("there are 1"));
    }
}
