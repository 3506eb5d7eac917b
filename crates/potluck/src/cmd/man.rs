//! `potluck man`: writes manual pages, made from the same declarations as `--help`.

use super::Ending;
use crate::args::{Args, ManArgs};
use crate::output::{Output, Piped};
use clap::{Command, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub fn run(args: &ManArgs, output: &Output) -> Result<Ending, Failure> {
    let mut root = Args::command().disable_help_subcommand(true);
    // Building gives every command its full name and the global options.
    root.build();
    let Some(dir) = &args.dir else {
        return match page(&root, None).and_then(|text| Piped::for_content().write_all(&text)) {
            Ok(()) => Ok(Ending::Done),
            Err(error) => Err(failed("cannot write to standard output", &error)),
        };
    };
    let written = fs::create_dir_all(dir).and_then(|()| write_pages(&root, None, dir));
    let pages = written.map_err(|error| {
        failed(&format!("cannot write manual pages to {}", dir.display()), &error)
    })?;
    let result = serde_json::json!({ "directory": dir, "pages": pages });
    output.result(&result, |_| format!("wrote {pages} manual pages to {}", dir.display()));
    Ok(Ending::Done)
}

/// Writes the pages of `command` and of every command below it, and returns their number.
fn write_pages(command: &Command, above: Option<&str>, dir: &Path) -> io::Result<usize> {
    let name = name(command);
    fs::write(dir.join(format!("{name}.1")), page(command, above)?)?;
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    below
        .map(|sub| write_pages(sub, Some(name), dir))
        .sum::<io::Result<usize>>()
        .map(|count| count + 1)
}

fn page(command: &Command, above: Option<&str>) -> io::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command.clone())
        .title(name(command).to_uppercase())
        .source(format!("potluck {}", env!("CARGO_PKG_VERSION")))
        .manual("Potluck");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    after_help(command, &mut rest);
    if let Some(above) = above {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold(above), roman("(1)")]);
    }
    rest.to_writer(&mut text)?;
    Ok(text)
}

/// Makes the synopsis of a command from the usage line of `--help`. The generator's own synopsis lists all options,
/// and puts arguments that exclude each other in the wrong order.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]).control("nf", []);
    for line in usage.trim_start_matches("Usage:").lines().map(str::trim) {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section
}

/// Writes the text that `--help` shows below the options. A paragraph that begins with a heading, such as
/// "Examples:", becomes a section of that name, and its lines stay as they are.
fn after_help(command: &Command, page: &mut Roff) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (heading, body) = paragraph.split_once(':').unwrap_or(("Notes", paragraph));
        page.control("SH", [heading.to_uppercase().as_str()]);
        page.control("nf", []);
        for line in body.lines().map(str::trim).filter(|line| !line.is_empty()) {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
}

/// Returns the name of a command's page, such as `potluck-nodes-ls` for `potluck nodes ls`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("{what}: {error}"))
        .hint("check rights and free space there")
}
