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
    // The program's own help lists them in groups, up to the advice to ask for the help of one of them.
    let commands = match above.is_empty() {
        true => help.split_once("`potluck COMMAND --help`").map_or("", |(groups, _)| groups),
        false => help.split_once("Commands:\n").map_or("", |(_, commands)| commands),
    };
    let lines = commands.lines().take_while(|line| above.is_empty() || !line.is_empty());
    // A line with which an explanation goes on is indented deeper.
    lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(String::from)
        .collect()
}

/// Returns the long name of the option that a line of a help explains, if it does.
fn option(line: &str) -> Option<&str> {
    let words = line.strip_prefix("  ")?.trim_start();
    let long = words.get(4..).filter(|_| words.starts_with('-') && !words.starts_with("--"));
    let long = long.unwrap_or(words).trim_start();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    long.starts_with("--").then(|| long.split(|c| !is_name(c)).next())?
}

#[test]
fn help_all_lists_every_command_with_those_below_it() {
    let said = potluck(&["help", "all"]);
    let line = |command: &str| said.lines().any(|line| line.starts_with(&format!("  {command} ")));
    for command in listed(&[]) {
        assert!(line(&format!("potluck {command}")), "{command}: {said}");
        for below in listed(&[&command]) {
            assert!(line(&format!("potluck {command} {below}")), "{command} {below}: {said}");
        }
    }
    assert!(line("potluck manager restore") && line("potluck lend status"), "{said}");
}

#[test]
fn every_command_has_a_manual_page_with_what_its_help_says() {
    let dir = TempDir::new().expect("a directory");
    let pages = dir.path().join("share/man1");
    potluck(&["man", pages.to_str().expect("UTF-8")]);

    let mut commands = vec![Vec::new()];
    let mut at = 0;
    while let Some(above) = commands.get(at).cloned() {
        let words: Vec<&str> = above.iter().map(String::as_str).collect();
        let below = listed(&words).into_iter().map(|name| [&above[..], &[name]].concat());
        commands.extend(below);
        at += 1;
    }
    let page_of = |command: &[String]| {
        let words = ["potluck".to_owned()].into_iter().chain(command.iter().cloned());
        format!("{}.1", words.collect::<Vec<_>>().join("-"))
    };
    let expected: BTreeSet<String> = commands.iter().map(|command| page_of(command)).collect();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let written: BTreeSet<String> = files_of(&pages).iter().map(|path| name(path)).collect();
    assert_eq!(written, expected);

    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = potluck(&words);
        let text = fs::read_to_string(pages.join(page_of(command))).expect("a page");
        let text = [r"\fB", r"\fI", r"\fR"].iter().fold(text, |text, font| text.replace(font, ""));
        let text = text.replace(r"\-", "-");
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).expect("a usage");
        let options = help.lines().filter_map(option);
        let sections = [".SH \"GLOBAL OPTIONS\"", ".SH EXAMPLE", ".SH \"SEE ALSO\""];
        let sections = if command.is_empty() { &sections[..1] } else { &sections };
        assert!(options.clone().count() > 5, "{help}");
        for part in options.chain([usage]).chain(sections.iter().copied()) {
            assert!(text.contains(part), "no {part} in the page of {command:?}:\n{text}");
        }
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
    complete("potluck nodes aw", "away");
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
