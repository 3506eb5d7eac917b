//! `potluck verify`: checks how safe files are, and whether their bytes are right.

use super::Ending;
use super::fsck::{self, FsckFindings};
use super::health::{sentence, window};
use crate::args::VerifyArgs;
use crate::output::{Output, count, name, told};
use crate::progress_bar;
use potluck_client::{CheckedFile, Pool, Progress, RetryLimits, check_file, check_tree};
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::control::{EntryKind, Health};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The findings of `verify`, as `--json` shows them.
#[derive(Serialize)]
struct Verified {
    #[serde(flatten)]
    findings: FsckFindings,
    /// The health of the file, if the path is of a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<Health>,
    /// The result of reading the files, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<ReadBack>,
}

#[derive(Default, Serialize)]
struct ReadBack {
    files: u64,
    bytes: u64,
    /// The number of copies that were found missing or damaged while files were read.
    bad_copies: u64,
    failed: Vec<FailedFile>,
}

#[derive(Serialize)]
struct FailedFile {
    path: String,
    /// The number of its bytes that cannot be read; 0 if it could not be opened.
    unreadable: u64,
    error: Failure,
}

pub async fn run(
    args: VerifyArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    // The command is to tell which files cannot be read now, so it does not wait for donors.
    let limits = RetryLimits { donors: Duration::ZERO, ..client.retry_limits() };
    let client = &client.with_retry_limits(limits);
    let is_file = is_file(&args, client).await?;
    // Files are read first, so that the judgement knows of the bad copies that are found.
    let read = match args.read {
        true => {
            let read = read_back(&args.path, is_file, client, shown).await?;
            client.settle().await;
            Some(ReadBack { bad_copies: client.bad_copies(), ..read })
        }
        false => None,
    };
    let findings = fsck::look(client, &args.path, shown).await?;
    let health = match is_file {
        true => client.stat(&args.path).await?.health,
        false => None,
    };
    let verified = Verified { findings, health, read };
    output.result(&verified, text);
    for failed in verified.read.iter().flat_map(|read| &read.failed) {
        let lost = match failed.unreadable {
            0 => String::new(),
            bytes => format!("{} cannot be read, for the first of it ", format_size(bytes)),
        };
        let message = format!("{}: {lost}{}", told(&failed.path), failed.error.message);
        output.complain(&Failure { message, ..failed.error.clone() });
    }
    ending(&verified)
}

/// Returns whether the path names a single file.
///
/// Errors: the path is a directory, and `-r` is not given; it is a link; it does not exist.
async fn is_file(args: &VerifyArgs, client: &Pool) -> Result<bool, Failure> {
    let kind = match args.path.space().is_empty() {
        true => EntryKind::Dir,
        false => client.stat_unjudged(&args.path).await?.entry.kind,
    };
    match (kind, args.recursive) {
        (EntryKind::File, _) => Ok(true),
        (EntryKind::Dir, true) => Ok(false),
        (EntryKind::Dir, false) => Err(is_directory(&args.path)),
        (EntryKind::Link, _) => {
            let what = format!("{} is a symbolic link, which the pool does not follow", args.path);
            Err(Failure::new(ErrorKind::Usage, code::WRONG_KIND, what)
                .hint("name what it leads to"))
        }
    }
}

fn is_directory(path: &PoolPath) -> Failure {
    Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, format!("{path} is a directory"))
        .hint("add -r to verify all that is below it")
}

/// Reads every byte below a path. The client compares each chunk with its name, and each file's recipe with its
/// digest. The bytes are discarded.
async fn read_back(
    path: &PoolPath,
    is_file: bool,
    client: &Pool,
    shown: bool,
) -> Result<ReadBack, Failure> {
    let progress = progress_bar::transfer(client, shown, Some(0));
    let mut read = ReadBack::default();
    if is_file {
        read.file(path, client, &progress).await;
        return Ok(read);
    }
    for tree in trees(path, client).await? {
        read.tree(&tree, client, &progress).await?;
    }
    Ok(read)
}

/// Returns the trees that are each opened as a whole: the path itself, or all spaces for the root.
async fn trees(path: &PoolPath, client: &Pool) -> Result<Vec<PoolPath>, Failure> {
    if !path.space().is_empty() {
        return Ok(vec![path.clone()]);
    }
    let spaces = client.under_way().list(path, false).await?;
    spaces.iter().map(|space| below(path, &space.path)).collect()
}

impl ReadBack {
    async fn tree(
        &mut self,
        path: &PoolPath,
        client: &Pool,
        progress: &Arc<dyn Progress>,
    ) -> Result<(), Failure> {
        let done = check_tree(client, path, Arc::clone(progress)).await?;
        self.files += done.files;
        self.bytes = self.bytes.saturating_add(done.bytes);
        // A file that failed may have been replaced or removed since its page was opened. What is there now is
        // read once more.
        for (file, _) in done.failed {
            self.file(&below(path, &file)?, client, progress).await;
        }
        Ok(())
    }

    async fn file(&mut self, path: &PoolPath, client: &Pool, progress: &Arc<dyn Progress>) {
        let mut failed = |unreadable, error| {
            self.failed.push(FailedFile { path: path.to_string(), unreadable, error });
        };
        match check_file(client, path, Arc::clone(progress)).await {
            Ok(CheckedFile { unreadable, why: Some(why), .. }) => failed(unreadable, why),
            Ok(checked) => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(checked.bytes);
            }
            // The file was removed after it was listed.
            Err(error) if error.code == code::NO_ENTRY => {}
            Err(error) => failed(0, error),
        }
    }
}

fn below(path: &PoolPath, relative: &str) -> Result<PoolPath, Failure> {
    let names = relative.split('/').filter(|name| !name.is_empty());
    let joined = path.join_all(names);
    joined.map_err(|why| Failure::new(ErrorKind::Integrity, code::BAD_PATH, why.to_string()))
}

fn text(verified: &Verified) -> String {
    let judged = match &verified.health {
        Some(health) => {
            let window = window(health).map(|window| format!("\n{window}"));
            let window = window.unwrap_or_default();
            format!("{}  {}{window}", name(&verified.findings.path), sentence(health))
        }
        None => fsck::text(&verified.findings),
    };
    let Some(read) = &verified.read else { return judged };
    let mut text = format!(
        "read back: {}, {}{}; {} failed",
        count(read.files, "file"),
        format_size(read.bytes),
        if read.files > 0 { ", every byte right" } else { "" },
        read.failed.len()
    );
    if read.bad_copies > 0 {
        let copies = count(read.bad_copies, "bad copy");
        text.push_str(&format!(
            "\n{copies} met, missing or spoiled, and reported: repair makes them again where others are right, \
             and `potluck scrub now` has donors look at all that they hold. After that:"
        ));
    }
    format!("{text}\n{judged}")
}

fn ending(verified: &Verified) -> Result<Ending, Failure> {
    let failed = verified.read.as_ref().map_or(&[][..], |read| &read.failed);
    if let Some(first) = failed.first() {
        let what = format!("{} could not be read back", count(failed.len() as u64, "file"));
        // Files that the caller may not read are not known to be damaged.
        if failed.iter().all(|file| file.error.kind == ErrorKind::Auth) {
            return Err(Failure { message: what, ..first.error.clone() });
        }
        return Err(Failure::new(ErrorKind::Integrity, code::UNREADABLE, what)
            .hint("the reasons are above; `potluck fsck` shows what is missing"));
    }
    let ending = fsck::ending(&verified.findings)?;
    let bad = verified.read.as_ref().is_some_and(|read| read.bad_copies > 0);
    Ok(if bad && ending == Ending::Done { Ending::Partial } else { ending })
}
