//! `potluck write-shared`: files that several writers write at once, each a part of its own.

use super::Ending;
use super::cp::place::cannot_read;
use crate::args::{SharedArgs, SharedCommitArgs, SharedPathArgs, SharedWriteArgs};
use crate::output::{Output, count, name, table};
use potluck_client::{
    Attributes, Pool, PutOptions, SharedOutcome, SharedWriter, SharedWriterState,
};
use potluck_core::checkpoint::CommitStyle;
use potluck_core::path::PoolPath;
use potluck_core::size::{duration, format_size};
use potluck_wire::control::CheckpointAbout;
use potluck_wire::error::{Failure, code};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The number of bytes that are read and written at a time.
const PIECE: usize = 4 << 20;

/// The outcome for a shared file.
#[derive(Debug, Serialize)]
struct Shared<'a> {
    path: &'a PoolPath,
    outcome: SharedOutcome,
}

/// A range that was written.
#[derive(Debug, Serialize)]
struct Written<'a> {
    path: &'a PoolPath,
    name: String,
    at: u64,
    bytes: u64,
    outcome: SharedOutcome,
}

/// The files that are shared.
#[derive(Debug, Serialize)]
struct SharedFileList<'a> {
    files: Vec<&'a CheckpointAbout>,
}

/// The writers of a file.
#[derive(Debug, Serialize)]
struct WriterList<'a> {
    path: &'a PoolPath,
    writers: Vec<SharedWriterState>,
}

pub async fn run(args: SharedArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        SharedArgs::Begin(SharedPathArgs { path }) => {
            client.share(&path, true).await?;
            output.result(&serde_json::json!({ "path": path }), |_| String::new());
        }
        SharedArgs::Write(args) => write(&args, client, output).await?,
        SharedArgs::Commit(SharedCommitArgs { path, leave_out }) => {
            let outcome = client.publish_shared(&path, &leave_out).await?;
            output.result(&Shared { path: &path, outcome }, |shared| match shared.outcome {
                SharedOutcome::Published => String::new(),
                _ => {
                    let path = path.to_string();
                    format!("nothing was written to {} since its last version", name(&path))
                }
            });
            // After a commit the file is no longer shared, unless writers have begun the next version.
            client.end_unused_sharing(&path).await?;
        }
        SharedArgs::Abort(SharedPathArgs { path }) => {
            client.end_sharing(&path).await?;
            output.result(&serde_json::json!({ "path": path }), |_| String::new());
        }
        SharedArgs::Ls(args) => match args.path {
            Some(path) => {
                let writers = client.shared_writers(&path).await?;
                output.result(&WriterList { path: &path, writers }, |list| of_writers(list));
            }
            None => {
                let open = client.checkpoints().await?.checkpoints;
                let files = open.iter().filter(|it| it.style == CommitStyle::Share).collect();
                output.result(&SharedFileList { files }, |list| of_files(list));
            }
        },
    }
    Ok(Ending::Done)
}

async fn write(args: &SharedWriteArgs, client: &Pool, output: &Output) -> Result<(), Failure> {
    let SharedWriteArgs { source: local, path, at, name } = args;
    let (local, source) = (Path::new(local), open(local)?);
    let bytes = match &source {
        WrittenInput::File(_, len) => Some(*len),
        WrittenInput::Stream(_) => None,
    };
    let options = PutOptions { bytes, ..PutOptions::default() };
    let attributes = Attributes::default();
    let mut writer = client.shared_writer(path, name.as_deref(), &options, attributes).await?;
    let mut bytes = 0;
    let written = match source {
        WrittenInput::File(file, len) => {
            let written = writer.write_file(*at, &file, 0..len).await;
            written.map(|()| bytes = len).map_err(|failure| match failure.code == code::LOCAL_IO {
                true => Failure {
                    message: format!("{}: {}", local.display(), failure.message),
                    ..failure
                },
                false => failure,
            })
        }
        WrittenInput::Stream(reader) => {
            let source = (local, reader);
            write_stream(&mut writer, *at, source, &mut bytes).await
        }
    };
    if let Err(failure) = written {
        // If another writer has all these bytes, this writer is removed, so that nobody waits for it. After any other
        // failure it stays registered, so that no version is made without its bytes.
        if failure.code == code::CLAIMED && bytes == 0 {
            let _: Result<SharedOutcome, Failure> = writer.abort().await;
        }
        return Err(failure);
    }
    let name = writer.name().to_owned();
    let outcome = writer.finish().await?;
    let written = Written { path, name, at: *at, bytes, outcome };
    output.result(&written, |written| match written.outcome {
        SharedOutcome::Published => String::new(),
        _ => {
            let path = path.to_string();
            format!("written; {} has it with its next version", crate::output::name(&path))
        }
    });
    Ok(())
}

/// Writes all bytes of a stream, and counts them in `bytes`.
async fn write_stream(
    writer: &mut SharedWriter,
    at: u64,
    (name, mut reader): (&Path, Box<dyn Read + Send>),
    bytes: &mut u64,
) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let read = read_full(&mut *reader, &mut piece);
            (reader, piece, read)
        });
        let (back, filled, len) = match read.await {
            Ok(read) => read,
            Err(why) => std::panic::resume_unwind(why.into_panic()),
        };
        (reader, piece) = (back, filled);
        let len = len.map_err(|error| cannot_read(name, &error))?;
        if len == 0 {
            return Ok(());
        }
        writer.write_at(at + *bytes, &piece[..len]).await?;
        *bytes += len as u64;
    }
}

/// The source of the bytes that are written.
enum WrittenInput {
    /// A local file and its length in bytes.
    File(Arc<File>, u64),
    /// A stream of unknown length.
    Stream(Box<dyn Read + Send>),
}

fn open(source: &OsStr) -> Result<WrittenInput, Failure> {
    if source == "-" {
        return Ok(WrittenInput::Stream(Box::new(std::io::stdin())));
    }
    let failed = |error| cannot_read(Path::new(source), &error);
    let file = File::open(source).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    Ok(match about.is_file() {
        true => WrittenInput::File(Arc::new(file), about.len()),
        false => WrittenInput::Stream(Box::new(file)),
    })
}

/// Fills the buffer, or as much of it as there is to read, and returns the number of bytes.
fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn of_files(list: &SharedFileList<'_>) -> String {
    let row = |about: &&CheckpointAbout| {
        vec![
            duration(about.age_ms / 1000),
            count(about.files, "writer"),
            format_size(about.bytes),
            about.maker.clone().unwrap_or_else(|| about.member.to_string()),
            name(&about.target.to_string()).into(),
        ]
    };
    let rows: Vec<_> = list.files.iter().map(row).collect();
    table(&["age", "writers", "stored", "by", "file"], &[0, 2], &rows)
}

fn of_writers(list: &WriterList<'_>) -> String {
    let row = |it: &SharedWriterState| {
        let claimed = it.claimed.map_or_else(|| "-".into(), format_size);
        let member = it.member.clone().unwrap_or_else(|| "-".into());
        vec![it.name.clone(), it.state.to_string(), claimed, member]
    };
    let rows: Vec<_> = list.writers.iter().map(row).collect();
    table(&["writer", "state", "claimed", "by"], &[2], &rows)
}
