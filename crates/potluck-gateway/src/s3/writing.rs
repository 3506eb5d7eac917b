//! Objects that are written, copied and removed.

use super::checksums::{BodyChecked, SaidOfBody};
use super::{errors, metadata};
use futures_util::StreamExt;
use potluck_client::{Attributes, Pool, PutOptions};
use potluck_core::file_metadata::FileMetadata;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, EntryKind};
use potluck_wire::error::{Failure, code};
use s3s::dto::{IfMatch, IfNoneMatch, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// An object that arrives.
pub struct Arriving<'a> {
    /// The file that it becomes.
    pub path: PoolPath,
    /// The condition under which it may replace what is there.
    pub condition: Condition,
    /// The bytes of the object.
    pub body: Option<StreamingBlob>,
    /// The number of its bytes, if the client says so.
    pub bytes: Option<u64>,
    /// What the client says of its bytes.
    pub said: &'a SaidOfBody,
    /// The metadata of the object, to which the digests are added.
    pub metadata: FileMetadata,
}

/// Stores an object. It is visible when this returns, and nothing of it is if this fails.
pub async fn store(pool: &Pool, arriving: Arriving<'_>) -> S3Result<BodyChecked> {
    let Arriving { path, condition, body, bytes, said, mut metadata } = arriving;
    let options = PutOptions { condition, bytes, ..PutOptions::default() };
    let writer = pool.create(&path, &options, Attributes::default()).await;
    let mut writer = writer.map_err(errors::of)?;
    let mut digests = said.begin();
    let mut came = 0;
    if let Some(mut body) = body {
        while let Some(part) = body.next().await {
            // What the client signed piece by piece, or the connection, is at fault.
            let part = part.map_err(|why| {
                S3Error::with_message(S3ErrorCode::IncompleteBody, why.to_string())
            })?;
            digests.update(&part);
            came += part.len() as u64;
            writer.write(&part).await.map_err(errors::of)?;
        }
    }
    if bytes.is_some_and(|bytes| bytes != came) {
        return Err(s3_error!(IncompleteBody, "{} bytes came and not those that were said", came));
    }
    let checked = said.check(digests)?;
    checked.note(&mut metadata);
    writer.set_metadata(metadata);
    writer.finish().await.map_err(errors::of)?;
    Ok(checked)
}

/// Returns the condition under which an object may be written.
///
/// Errors: `PreconditionFailed` where it does not hold already, `NoSuchKey` for `If-Match` where nothing is.
pub async fn condition(
    pool: &Pool,
    path: &PoolPath,
    if_match: Option<IfMatch>,
    if_none_match: Option<IfNoneMatch>,
) -> S3Result<Condition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::Always),
        (None, Some(condition)) if condition.is_any() => Ok(Condition::IfAbsent),
        (None, Some(_)) => Err(s3_error!(
            NotImplemented,
            "a write is conditional by If-None-Match: * or by If-Match"
        )),
        (Some(wanted), _) => {
            let entry = pool.stat_unjudged(path).await.map_err(errors::of)?.entry;
            let tag = metadata::etag(entry.metadata.as_ref(), entry.digest);
            match entry.version.filter(|_| metadata::is(&wanted, &tag)) {
                Some(version) => Ok(Condition::IfVersion(version)),
                None => Err(metadata::failed()),
            }
        }
    }
}

/// Removes the file at a path, or a directory that is empty. That nothing is there is no error.
pub async fn remove(pool: &Pool, path: &PoolPath, is_dir: bool) -> Result<(), Failure> {
    let found = match pool.kind(path).await? {
        Some(EntryKind::Dir) if !is_dir => return Ok(()), // no object has this key
        Some(_) => pool.remove(path, false).await.map(drop),
        None => Ok(()),
    };
    match found {
        Err(failure) if failure.code == code::NO_ENTRY => Ok(()),
        // A directory that has entries is none that its marker made alone.
        Err(failure)
            if is_dir && [code::NOT_RECURSIVE, code::NOT_EMPTY].contains(&&*failure.code) =>
        {
            Ok(())
        }
        other => other,
    }
}
