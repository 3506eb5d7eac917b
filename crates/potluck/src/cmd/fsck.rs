//! `potluck fsck`: files that are not as safe as they should be.

use super::Ending;
use super::health::{Standing, sentence, standing};
use crate::args;
use crate::output::{Output, count, name};
use crate::progress_bar;
use potluck_client::pool::Client;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Damage, Fsck};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;

/// What a look at many files found.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// Where.
    pub path: String,
    /// Files looked at.
    pub files: u64,
    /// Those of them with less redundancy than promised.
    pub incomplete: u64,
    /// Those that cannot be read now.
    pub unreadable: u64,
    /// Of the pool's own metadata, files that are not as safe as they should be.
    pub metadata: u64,
    /// Each of these.
    pub found: Vec<Damage>,
}

pub async fn run(
    args: args::Fsck,
    client: &Client,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let findings = look(client, &args.path, shown).await?;
    output.result(&findings, text);
    ending(&findings)
}

/// Looks at every file below a path, as the catalog knows it.
pub async fn look(client: &Client, path: &PoolPath, shown: bool) -> Result<Findings, Failure> {
    let line = progress_bar::line(shown);
    let mut findings = Findings { path: path.to_string(), ..Findings::default() };
    let mut after = None;
    loop {
        let ask = Fsck { path: path.clone(), incomplete: true, after };
        let page = client.call_patiently(&ask).await?;
        findings.files += page.files;
        findings.metadata += page.metadata;
        page.found.into_iter().for_each(|damage| findings.add(damage));
        line.say(&format!("{} looked at", count(findings.files, "file")));
        after = page.next;
        if after.is_none() {
            return Ok(findings);
        }
    }
}

impl Findings {
    /// Counts one file; a sound one is only counted by [`Self::files`].
    pub fn add(&mut self, damage: Damage) {
        match standing(&damage.health) {
            Standing::Safe => return,
            Standing::Incomplete => self.incomplete += 1,
            Standing::Unreadable => self.unreadable += 1,
        }
        self.found.push(damage);
    }
}

/// The findings for people.
pub fn text(findings: &Findings) -> String {
    let mut text = String::new();
    for damage in &findings.found {
        let word = match standing(&damage.health) {
            Standing::Unreadable => "unreadable",
            _ => "incomplete",
        };
        let hope = if damage.may_return {
            "; what is missing is on donors that do not answer"
        } else {
            ""
        };
        let what = match &damage.damaged {
            Some(why) => format!("the catalog's records of it are damaged: {why}"),
            None => sentence(&damage.health) + hope,
        };
        text.push_str(&format!("{word}  {}  {what}\n", name(&damage.path)));
    }
    if findings.metadata > 0 {
        text.push_str(&format!(
            "the pool's own metadata is incomplete: {}, which repair makes whole, or the next backup\n",
            count(findings.metadata, "file")
        ));
    }
    text + &match (findings.unreadable, findings.incomplete) {
        (0, 0) => format!("{}, all as safe as promised", count(findings.files, "file")),
        (unreadable, incomplete) => format!(
            "{}: {unreadable} unreadable, {incomplete} incomplete",
            count(findings.files, "file")
        ),
    }
}

/// How a look with these findings ends: 0, 4 or 7.
pub fn ending(findings: &Findings) -> Result<Ending, Failure> {
    if findings.unreadable > 0 {
        let returns = findings.found.iter().any(|damage| damage.may_return);
        let damaged = findings.found.iter().any(|damage| damage.damaged.is_some());
        let what = format!("{} cannot be read now", count(findings.unreadable, "file"));
        return Err(Failure::new(ErrorKind::Integrity, code::UNREADABLE, what).hint(
            match (damaged, returns) {
                (true, _) => {
                    "stop the manager and bring its catalog back with `potluck manager restore`"
                }
                (_, true) => "bring back the donors that do not answer: `potluck nodes ls`",
                (_, false) => {
                    "what is missing is on no donor: store these files again from their source"
                }
            },
        ));
    }
    Ok(if findings.incomplete + findings.metadata > 0 { Ending::Partial } else { Ending::Done })
}
