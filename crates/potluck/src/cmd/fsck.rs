//! `potluck fsck`: lists files that are not as safe as they should be.

use super::Ending;
use super::health::sentence;
use super::status;
use crate::args;
use crate::output::{Output, count, name};
use crate::progress_bar;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Check, Damage, Fsck, FsckOutcome, HealthLevel, PoolState, Verdict};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::time::Duration;

/// How long to wait for a verdict of the manager.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(30);
/// The findings about all files below a path.
#[derive(Debug, Default, Serialize)]
pub struct FsckFindings {
    /// The path below which files were checked.
    pub path: String,
    /// The number of files that were checked, without those that are kept after they were replaced or removed.
    pub files: u64,
    /// The number of files that were checked and are kept after they were replaced or removed.
    pub kept_files: u64,
    /// The number of files with less redundancy than promised.
    pub incomplete: u64,
    /// The number of files that cannot be read now.
    pub unreadable: u64,
    /// The number of files that are as safe as promised only when silent or away donors are back.
    pub waiting: u64,
    /// The number of files with copies that readers reported as bad and that their donors have not checked yet.
    pub in_doubt: u64,
    /// The number of files of the pool's own metadata that are not as safe as they should be.
    pub metadata: u64,
    /// The files that are not as safe as they should be, each with what it lacks.
    pub found: Vec<Damage>,
    /// The manager's judgement of all files together.
    pub outcome: FsckOutcome,
    /// The manager's advice if files cannot be read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
    /// The verdict about the whole pool, not only its files; present if the whole pool was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

pub async fn run(
    args: args::FsckArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let mut findings = look(client, &args.path, shown).await?;
    if args.path.space().is_empty() {
        findings.verdict = Some(verdict(client, findings.outcome == FsckOutcome::Well).await?);
    }
    output.result(&findings, text);
    ending(&findings)
}

/// Returns the pool's verdict. Waits some time for one that is known, and, if `all_well`, for one that no longer
/// complains of files: the manager takes some seconds to notice that.
async fn verdict(client: &Pool, all_well: bool) -> Result<Verdict, Failure> {
    let started = client.now();
    loop {
        let verdict = client.call_retrying(&Check {}).await?;
        let waited = client.now() - started;
        let behind = verdict.state == PoolState::NotKnown || (all_well && verdict.of_files);
        if !behind || waited > VERDICT_TIMEOUT {
            return Ok(verdict);
        }
        tokio::time::sleep(super::waiting::ASK_AGAIN).await;
    }
}

/// Checks every file below a path, as the catalog knows it. If the only finding is a doubt, which donors soon resolve,
/// it checks again for some time.
pub async fn look(client: &Pool, path: &PoolPath, shown: bool) -> Result<FsckFindings, Failure> {
    client.call_retrying(&Check {}).await?; // returns when the manager knows all that happened
    let started = client.now();
    loop {
        let findings = look_once(client, path, shown).await?;
        let waited = client.now() - started;
        let known = findings.in_doubt == 0 || findings.incomplete + findings.unreadable > 0;
        if known || waited > VERDICT_TIMEOUT {
            return Ok(findings);
        }
        tokio::time::sleep(super::waiting::ASK_AGAIN).await;
    }
}

async fn look_once(client: &Pool, path: &PoolPath, shown: bool) -> Result<FsckFindings, Failure> {
    let line = progress_bar::line(shown);
    let mut findings = FsckFindings { path: path.to_string(), ..FsckFindings::default() };
    let mut after = None;
    loop {
        let ask = Fsck { path: path.clone(), incomplete: true, after };
        let page = client.call_retrying(&ask).await?;
        findings.files += page.files;
        findings.kept_files += page.kept_files;
        findings.waiting += page.waiting;
        findings.in_doubt += page.in_doubt;
        findings.metadata += page.metadata;
        if page.outcome > findings.outcome {
            (findings.outcome, findings.advice) = (page.outcome, page.advice);
        }
        page.found.into_iter().for_each(|damage| findings.add(damage));
        let looked_at = findings.files + findings.kept_files;
        line.say(&format!("{} looked at", count(looked_at, "file")));
        after = page.next;
        if after.is_none() {
            return Ok(findings);
        }
    }
}

impl FsckFindings {
    /// Counts one file with its health. [`Self::files`] is counted elsewhere.
    pub fn add(&mut self, damage: Damage) {
        match damage.health.level {
            HealthLevel::Safe => return,
            HealthLevel::Waiting => {
                self.waiting += 1;
                return;
            }
            HealthLevel::Incomplete => self.incomplete += 1,
            HealthLevel::Unreadable => self.unreadable += 1,
        }
        self.found.push(damage);
    }
}

/// Formats the findings for people.
pub fn text(findings: &FsckFindings) -> String {
    let mut text = String::new();
    for damage in &findings.found {
        let word = match damage.health.level {
            HealthLevel::Unreadable => "unreadable",
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
    if findings.in_doubt > 0 {
        text.push_str(&format!(
            "readers called copies of {} bad, and their donors have not looked at them yet\n",
            count(findings.in_doubt, "file")
        ));
    }
    if findings.metadata > 0 {
        text.push_str(&format!(
            "the pool's own metadata is incomplete: {}, which repair makes whole, or the next backup\n",
            count(findings.metadata, "file")
        ));
    }
    let mut files = count(findings.files, "file");
    if findings.kept_files > 0 {
        files += &format!(" and {}", count(findings.kept_files, "kept version"));
    }
    text.push_str(&match (findings.unreadable, findings.incomplete, findings.waiting) {
        (0, 0, 0) if findings.in_doubt > 0 => format!("{files}, the others as safe as promised"),
        (0, 0, 0) => format!("{files}, all as safe as promised"),
        (0, 0, waiting) => format!(
            "{files}, all as safe as promised when silent or away donors are back; until then fewer \
             others may go than {} can do without",
            count(waiting, "file")
        ),
        (unreadable, incomplete, _) => {
            format!("{files}: {unreadable} unreadable, {incomplete} incomplete")
        }
    });
    if let Some(verdict) = ailing(findings) {
        let besides = match findings.outcome == FsckOutcome::Well && !verdict.of_files {
            true => "besides files, ",
            false => "",
        };
        text.push_str(&format!("\n{besides}the pool is {}", status::verdict_text(verdict)));
    }
    text
}

/// Returns the pool's verdict if the pool is not healthy.
fn ailing(findings: &FsckFindings) -> Option<&Verdict> {
    findings.verdict.as_ref().filter(|verdict| verdict.state != PoolState::Healthy)
}

/// Returns how a command with these findings ends: exit code 0, 4 or 7, or 5 if the findings are in doubt.
pub fn ending(findings: &FsckFindings) -> Result<Ending, Failure> {
    match findings.outcome {
        FsckOutcome::Well => Ok(findings.verdict.as_ref().map_or(Ending::Done, status::ending)),
        FsckOutcome::InDoubt => Ok(Ending::Said(ErrorKind::Retry)),
        FsckOutcome::LessSafe => Ok(Ending::Partial),
        FsckOutcome::Lost | FsckOutcome::Away | FsckOutcome::Damaged => {
            let what = format!("{} cannot be read now", count(findings.unreadable, "file"));
            Err(Failure::new(ErrorKind::Integrity, code::UNREADABLE, what).hint(&findings.advice))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsck_file_and_pool_summaries_agree() {
        let pool = |of_files| Verdict {
            state: PoolState::Degraded,
            reason: "no backup for a day".into(),
            of_files,
            ..Verdict::default()
        };
        let findings = |of_files| FsckFindings {
            files: 3,
            verdict: Some(pool(of_files)),
            ..FsckFindings::default()
        };
        let said = text(&findings(false));
        assert!(
            said.contains("3 files, all as safe as promised\nbesides files, the pool is"),
            "{said}"
        );
        assert_eq!(ending(&findings(false)), Ok(Ending::Partial), "the worse of the two");
        let outcome = FsckOutcome::InDoubt;
        let doubt = FsckFindings { in_doubt: 1, outcome, ..FsckFindings::default() };
        assert_eq!(ending(&doubt), Ok(Ending::Said(ErrorKind::Retry)));
        assert!(!text(&findings(true)).contains("besides"));
    }
}
