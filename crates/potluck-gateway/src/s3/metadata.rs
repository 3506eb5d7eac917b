//! What S3 knows of an object beside its bytes, as the pool keeps it.

use potluck_core::attributes::FileTime;
use potluck_core::chunk::Digest;
use potluck_core::file_metadata::FileMetadata;
use s3s::dto::{ETag, ETagCondition, Metadata, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// The type of content whose writer named none.
pub const BINARY: &str = "binary/octet-stream";

/// The headers that come with an object's content, by the names under which [`FileMetadata::headers`] has them.
pub const CONTENT_TYPE: &str = "content-type";
pub const CACHE_CONTROL: &str = "cache-control";
pub const CONTENT_DISPOSITION: &str = "content-disposition";
pub const CONTENT_ENCODING: &str = "content-encoding";
pub const CONTENT_LANGUAGE: &str = "content-language";

/// Returns the metadata that the headers of a request give.
///
/// Errors: `MetadataTooLarge`.
pub fn noted<const N: usize>(
    user: Option<Metadata>,
    headers: [(&str, Option<String>); N],
) -> S3Result<FileMetadata> {
    let headers = headers.into_iter();
    let headers = headers.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let metadata = FileMetadata {
        etag: None,
        headers: headers.collect(),
        user: user.into_iter().flatten().collect(),
    };
    if metadata.is_too_large() {
        return Err(s3_error!(MetadataTooLarge, "an object has at most 4 KiB of metadata"));
    }
    Ok(metadata)
}

/// Returns the entity tag of a file. That of a file which was not written through S3 follows from its digest, and has a
/// dash as tags have that are not the MD5 of the content.
pub fn etag(metadata: Option<&FileMetadata>, digest: Option<Digest>) -> ETag {
    let noted = metadata.and_then(|metadata| metadata.etag.clone());
    let of_digest = || {
        let digest = digest.map(|digest| digest.to_string()).unwrap_or_default();
        format!("{}-0", digest.get(..32).unwrap_or(&digest))
    };
    ETag::Strong(noted.unwrap_or_else(of_digest))
}

/// Returns a time as S3 tells it.
pub fn timestamp(time: FileTime) -> Timestamp {
    Timestamp::from(time.system())
}

/// The conditions of a request about an object that is there.
#[derive(Default)]
pub struct ReadConditions {
    /// The request holds only for this entity tag.
    pub if_match: Option<ETagCondition>,
    /// The request does not hold for this entity tag.
    pub if_none_match: Option<ETagCondition>,
    /// The request holds only if the object was modified later.
    pub if_modified_since: Option<Timestamp>,
    /// The request holds only if the object was not modified later.
    pub if_unmodified_since: Option<Timestamp>,
}

impl ReadConditions {
    /// Refuses a read of an object that the conditions exclude, in the order of RFC 9110, section 13.2.2.
    ///
    /// Errors: `NotModified`, `PreconditionFailed`.
    pub fn check(&self, tag: &ETag, modified: FileTime) -> S3Result<()> {
        // Times in headers are in whole seconds.
        let modified = timestamp(FileTime::of_ms(modified.ms().div_euclid(1000) * 1000));
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(wanted), _) if !is(wanted, tag) => return Err(failed()),
            (None, Some(since)) if modified > *since => return Err(failed()),
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(known), _) if is(known, tag) => Err(S3Error::new(S3ErrorCode::NotModified)),
            (None, Some(since)) if modified <= *since => {
                Err(S3Error::new(S3ErrorCode::NotModified))
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a condition names the entity tag of an object.
pub fn is(condition: &ETagCondition, tag: &ETag) -> bool {
    condition.as_etag().is_none_or(|wanted| wanted.weak_cmp(tag))
}

/// Returns the error of a condition that does not hold.
pub fn failed() -> S3Error {
    s3_error!(PreconditionFailed, "a condition of the request does not hold for the object")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> ETag {
        ETag::Strong(text.into())
    }

    #[test]
    fn conditions_hold_as_http_says() {
        let at = FileTime::of_ms(10_500);
        let since = |seconds: i64| Some(timestamp(FileTime::of_ms(seconds * 1000)));
        let wants = |text: &str| Some(ETagCondition::ETag(tag(text)));
        let code = |conditions: ReadConditions| {
            conditions.check(&tag("a"), at).err().map(|why| why.code().as_str().to_owned())
        };
        let (changed, failed) = (Some("NotModified".into()), Some("PreconditionFailed".into()));
        let none = ReadConditions::default;
        assert_eq!(code(none()), None);
        assert_eq!(code(ReadConditions { if_match: wants("a"), ..none() }), None);
        assert_eq!(code(ReadConditions { if_match: wants("b"), ..none() }), failed);
        assert_eq!(code(ReadConditions { if_none_match: wants("a"), ..none() }), changed);
        assert_eq!(code(ReadConditions { if_none_match: wants("b"), ..none() }), None);
        assert_eq!(code(ReadConditions { if_modified_since: since(10), ..none() }), changed);
        assert_eq!(code(ReadConditions { if_modified_since: since(9), ..none() }), None);
        assert_eq!(code(ReadConditions { if_unmodified_since: since(9), ..none() }), failed);
        assert_eq!(code(ReadConditions { if_unmodified_since: since(10), ..none() }), None);
    }

    #[test]
    fn tag_of_a_file_not_written_by_s3_is_no_md5() {
        let of_digest = etag(None, Some(Digest([0xab; 32])));
        assert_eq!(of_digest, tag(&format!("{}-0", "ab".repeat(16))));
        let noted = FileMetadata { etag: Some("x".into()), ..FileMetadata::default() };
        assert_eq!(etag(Some(&noted), Some(Digest([0xab; 32]))), tag("x"));
    }
}
