//! Tests the program's own manuals: help, manual pages and completions come from one declaration of the
//! command line, and none of them needs a pool or a home.

use super::lent::files_of;
use super::waiting::{has_program, skip};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs the product with no environment but `PATH`, so without a home or a configuration, and returns what it prints.
fn potluck(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_potluck"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).args(args);
    said(&mut command)
}

fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// Returns the commands that `potluck [ABOVE] --help` lists.
fn listed(above: &[&str]) -> Vec<String> {
    let help = potluck(&[above, &["--help"]].concat());
    let commands = help.split_once("Commands:\n").map_or("", |(_, commands)| commands);
    let lines = commands.lines().take_while(|line| !line.is_empty());
    // A line with which an explanation goes on is indented deeper.
    lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(String::from)
        .collect()
}

#[test]
fn every_command_has_a_manual_page_with_what_its_help_says() {
    let dir = TempDir::new().expect("a directory");
    let pages = dir.path().join("share/man1");
    potluck(&["man", pages.to_str().expect("UTF-8")]);

    let mut expected = BTreeSet::from(["potluck.1".to_string()]);
    for verb in listed(&[]) {
        for sub in listed(&[&verb]) {
            let below = listed(&[&verb, &sub]);
            expected.extend(below.iter().map(|last| format!("potluck-{verb}-{sub}-{last}.1")));
            expected.insert(format!("potluck-{verb}-{sub}.1"));
        }
        expected.insert(format!("potluck-{verb}.1"));
    }
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let written: BTreeSet<String> = files_of(&pages).iter().map(|path| name(path)).collect();
    assert_eq!(written, expected);

    let cp = fs::read_to_string(pages.join("potluck-cp.1")).expect("a page");
    let synopsis = r"potluck cp [OPTIONS] <FROM>... <TO>";
    for part in [synopsis, r"\-\-recursive", ".SH \"GLOBAL OPTIONS\"", ".SH EXAMPLES", "SEE ALSO"] {
        assert!(cp.contains(part), "no {part} in the page of cp:\n{cp}");
    }
    let root = potluck(&["man"]);
    assert!(root.contains("potluck\\-cp(1)") && root.contains(".SH \"EXIT CODES\""), "{root}");
}

#[test]
fn manual_pages_are_typeset_without_a_warning() {
    if !has_program("groff") {
        skip("manual_pages_are_typeset_without_a_warning", "no groff here");
        return;
    }
    let dir = TempDir::new().expect("a directory");
    potluck(&["man", dir.path().to_str().expect("UTF-8")]);
    for page in files_of(dir.path()) {
        let mut groff = Command::new("groff");
        groff.args(["-ww", "-man", "-Tutf8", "-Kutf8", "-z"]).arg(&page);
        let complaints = groff.output().expect("groff runs").stderr;
        assert!(complaints.is_empty(), "{}", String::from_utf8_lossy(&complaints));
    }
}

#[test]
fn a_shell_completes_commands_and_options() {
    let complete = |words: &str, expected: &str| {
        let script = format!(
            "source <(\"$0\" completion bash); COMP_WORDS=({words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _potluck potluck \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &script, env!("CARGO_BIN_EXE_potluck")]);
        let offered = said(&mut bash);
        assert!(offered.split_whitespace().any(|word| word == expected), "{words}: {offered}");
    };
    complete("potluck give", "give-back");
    complete("potluck nodes dr", "drain");
    complete("potluck cp --if-a", "--if-absent");
    for shell in ["zsh", "fish"] {
        assert!(potluck(&["completion", shell]).contains("give-back"), "{shell}");
    }
}

#[test]
fn options_of_every_command_stand_below_its_own() {
    let help = potluck(&["cp", "--help"]);
    let at = |what: &str| help.find(what).unwrap_or_else(|| panic!("no {what} in:\n{help}"));
    assert!(at("--recursive") < at("--if-version"), "{help}");
    assert!(at("--if-version") < at("\nGlobal options:"), "{help}");
    assert!(at("\nGlobal options:") < at("--json"), "{help}");
}
