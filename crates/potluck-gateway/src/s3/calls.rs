//! The calls of S3, each of which comes to calls of the client library. What is not here answers `NotImplemented`.

use super::checksums::SaidOfBody;
use super::errors;
use super::metadata::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE,
    ReadConditions, etag, noted, timestamp,
};
use super::multipart::Upload;
use super::reading::{self, ReadRequest};
use super::writing::{self, Arriving};
use crate::listing::{self, KeyPage, KeyQuery};
use crate::object_names::{NamedObject, named};
use crate::users::{User, Users};
use potluck_client::{Attributes, Pool, PutOptions};
use potluck_core::file_metadata::FileMetadata;
use potluck_core::path::{PoolPath, check_space};
use potluck_wire::control::{Condition, ListedEntry};
use potluck_wire::error::{Failure, code};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Bucket, ChecksumAlgorithm, CommonPrefix,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput,
    CopyObjectResult, CopySource, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETag, Error, GetBucketLocationInput, GetBucketLocationOutput, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput,
    ListBucketsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, ListPartsInput, ListPartsOutput, MetadataDirective, Object,
    ObjectIdentifier, ObjectStorageClass, PutObjectInput, PutObjectOutput, Timestamp,
    UploadPartInput, UploadPartOutput,
};
use s3s::validation::NameValidation;
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

/// The most keys of a page.
const MOST_KEYS: usize = 1000;

/// The answers to S3 requests.
pub struct S3Calls {
    users: Arc<Users>,
}

impl S3Calls {
    /// Makes the service for these users.
    pub fn new(users: Arc<Users>) -> Self {
        Self { users }
    }

    /// Returns the pool as the user shows it who signed a request.
    async fn pool<T>(&self, request: &S3Request<T>) -> S3Result<Pool> {
        let Some(credentials) = &request.credentials else {
            return Err(s3_error!(AccessDenied, "sign the request with an access key"));
        };
        Ok(self.users.of_key(&credentials.access_key).await.map_err(of_key)?.pool)
    }
}

/// The secrets that signatures are checked with.
pub struct Secrets(pub Arc<Users>);

#[async_trait::async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let User { secret, .. } = self.0.of_key(access_key).await.map_err(of_key)?;
        Ok(SecretKey::from(&*secret))
    }
}

/// Returns the S3 error for a key that the manager does not show.
fn of_key(failure: Failure) -> S3Error {
    match &*failure.code {
        code::BAD_KEY => {
            S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, failure.to_string())
        }
        _ => errors::of(failure),
    }
}

/// The names that buckets may have: those of spaces.
pub struct SpaceNames;

impl NameValidation for SpaceNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        check_space(name).is_ok()
    }
}

/// Returns the file that a key names.
fn file(bucket: &str, key: &str) -> S3Result<PoolPath> {
    match named(bucket, key).map_err(errors::of_key)? {
        NamedObject::File(path) => Ok(path),
        NamedObject::Dir(_) => Err(S3Error::new(S3ErrorCode::NoSuchKey)),
    }
}

/// Returns the file of a key that is to be written.
fn new_file(bucket: &str, key: &str) -> S3Result<PoolPath> {
    match named(bucket, key).map_err(errors::of_key)? {
        NamedObject::File(path) => Ok(path),
        NamedObject::Dir(_) => Err(s3_error!(
            InvalidArgument,
            "a key that ends in a slash is a directory, and has no content"
        )),
    }
}

fn done<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

fn most_keys(asked: Option<i32>) -> usize {
    asked.map_or(MOST_KEYS, |asked| usize::try_from(asked).unwrap_or(0)).min(MOST_KEYS)
}

fn object((key, entry): (String, ListedEntry)) -> Object {
    Object {
        e_tag: Some(etag(entry.metadata.as_ref(), entry.digest)),
        last_modified: Some(timestamp(entry.mtime)),
        size: Some(entry.size as i64),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        key: Some(key),
        ..Object::default()
    }
}

fn common(prefix: String) -> CommonPrefix {
    CommonPrefix { prefix: Some(prefix) }
}

async fn keys(pool: &Pool, bucket: &str, query: &KeyQuery<'_>) -> S3Result<KeyPage> {
    let space = PoolPath::space_root(bucket).map_err(errors::of_key)?;
    let page = listing::list(pool, &space, query).await;
    page.map_err(|failure| match &*failure.code {
        code::NO_ENTRY => S3Error::new(S3ErrorCode::NoSuchBucket),
        _ => errors::of(failure),
    })
}

/// Returns what a request says is to be noted of an object.
macro_rules! noted {
    ($input:ident) => {
        noted(
            $input.metadata.take(),
            [
                (CONTENT_TYPE, $input.content_type.take()),
                (CACHE_CONTROL, $input.cache_control.take()),
                (CONTENT_DISPOSITION, $input.content_disposition.take()),
                (CONTENT_ENCODING, $input.content_encoding.take().and_then(without_chunking)),
                (CONTENT_LANGUAGE, $input.content_language.take()),
            ],
        )
    };
}

/// Returns an encoding of content without `aws-chunked`, which is one of the request alone.
fn without_chunking(encoding: String) -> Option<String> {
    let names = encoding.split(',').map(str::trim).filter(|name| *name != "aws-chunked");
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then(|| names.join(","))
}

#[async_trait::async_trait]
impl S3 for S3Calls {
    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let pool = self.pool(&request).await?;
        let spaces = pool.spaces().await.map_err(errors::of)?;
        // Nobody notes when a space was made, and clients expect a time.
        let bucket = |name| Bucket {
            name: Some(name),
            creation_date: Some(Timestamp::from(std::time::SystemTime::UNIX_EPOCH)),
            ..Bucket::default()
        };
        let buckets = spaces.into_iter().map(|space| bucket(space.name)).collect();
        done(ListBucketsOutput { buckets: Some(buckets), ..ListBucketsOutput::default() })
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let pool = self.pool(&request).await?;
        let space = PoolPath::space_root(&request.input.bucket).map_err(errors::of_key)?;
        pool.stat_unjudged(&space).await.map_err(errors::of)?;
        done(HeadBucketOutput::default())
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        let pool = self.pool(&request).await?;
        let space = PoolPath::space_root(&request.input.bucket).map_err(errors::of_key)?;
        pool.stat_unjudged(&space).await.map_err(errors::of)?;
        done(GetBucketLocationOutput::default())
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let pool = self.pool(&request).await?;
        let input = request.input;
        let after = input.continuation_token.as_ref().or(input.start_after.as_ref());
        let query = KeyQuery {
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref(),
            after: after.map(String::as_str).unwrap_or_default(),
            most: most_keys(input.max_keys),
        };
        let KeyPage { files, prefixes, next } = keys(&pool, &input.bucket, &query).await?;
        let most = query.most;
        done(ListObjectsV2Output {
            key_count: Some((files.len() + prefixes.len()) as i32),
            contents: Some(files.into_iter().map(object).collect()),
            common_prefixes: Some(prefixes.into_iter().map(common).collect()),
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            max_keys: Some(most as i32),
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            continuation_token: input.continuation_token,
            start_after: input.start_after,
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        })
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let pool = self.pool(&request).await?;
        let input = request.input;
        let query = KeyQuery {
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref(),
            after: input.marker.as_deref().unwrap_or_default(),
            most: most_keys(input.max_keys),
        };
        let KeyPage { files, prefixes, next } = keys(&pool, &input.bucket, &query).await?;
        let most = query.most;
        done(ListObjectsOutput {
            contents: Some(files.into_iter().map(object).collect()),
            common_prefixes: Some(prefixes.into_iter().map(common).collect()),
            is_truncated: Some(next.is_some()),
            next_marker: next,
            max_keys: Some(most as i32),
            name: Some(input.bucket),
            prefix: input.prefix,
            marker: input.marker,
            delimiter: input.delimiter,
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        })
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let pool = self.pool(&request).await?;
        let input = request.input;
        refuse_version(input.version_id.as_ref())?;
        let path = file(&input.bucket, &input.key)?;
        let query = ReadRequest {
            range: input.range,
            conditions: ReadConditions {
                if_match: input.if_match,
                if_none_match: input.if_none_match,
                if_modified_since: input.if_modified_since,
                if_unmodified_since: input.if_unmodified_since,
            },
            checksums: input.checksum_mode.is_some(),
        };
        let mut output = reading::get(&pool, &path, &query).await?;
        output.content_type = input.response_content_type.or(output.content_type);
        output.content_disposition =
            input.response_content_disposition.or(output.content_disposition);
        output.content_encoding = input.response_content_encoding.or(output.content_encoding);
        output.content_language = input.response_content_language.or(output.content_language);
        output.cache_control = input.response_cache_control.or(output.cache_control);
        done(output)
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let pool = self.pool(&request).await?;
        let input = request.input;
        refuse_version(input.version_id.as_ref())?;
        let (path, is_dir) = match named(&input.bucket, &input.key).map_err(errors::of_key)? {
            NamedObject::File(path) => (path, false),
            NamedObject::Dir(path) => (path, true),
        };
        let query = ReadRequest {
            range: input.range,
            conditions: ReadConditions {
                if_match: input.if_match,
                if_none_match: input.if_none_match,
                if_modified_since: input.if_modified_since,
                if_unmodified_since: input.if_unmodified_since,
            },
            checksums: input.checksum_mode.is_some(),
        };
        done(reading::head(&pool, &path, is_dir, &query).await?)
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let pool = self.pool(&request).await?;
        let S3Request { mut input, headers, trailing_headers, .. } = request;
        let bytes = input.content_length.and_then(|length| u64::try_from(length).ok());
        if let NamedObject::Dir(dir) = named(&input.bucket, &input.key).map_err(errors::of_key)? {
            if bytes.unwrap_or_default() > 0 {
                return new_file(&input.bucket, &input.key)
                    .map(|_| unreachable!("it is a directory"));
            }
            pool.make_dir(&dir, true).await.map_err(errors::of)?;
            let e_tag = Some(ETag::Strong("d41d8cd98f00b204e9800998ecf8427e".into()));
            return done(PutObjectOutput { e_tag, ..PutObjectOutput::default() });
        }
        let path = new_file(&input.bucket, &input.key)?;
        let (if_match, if_none_match) = (input.if_match.take(), input.if_none_match.take());
        let condition = writing::condition(&pool, &path, if_match, if_none_match).await?;
        let algorithm = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let said = SaidOfBody::of(&headers, algorithm, trailing_headers);
        let metadata = noted!(input)?;
        let body = input.body.take();
        let arriving = Arriving { path, condition, body, bytes, said: &said, metadata };
        let stored = writing::store(&pool, arriving).await?;
        let checksum = stored.checksum;
        done(PutObjectOutput {
            e_tag: Some(ETag::Strong(super::checksums::hex(&stored.md5))),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..PutObjectOutput::default()
        })
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let pool = self.pool(&request).await?;
        let mut input = request.input;
        let CopySource::Bucket { bucket, key, version_id } = &input.copy_source else {
            return Err(s3_error!(NotImplemented, "name the source by its bucket and key"));
        };
        refuse_version(version_id.as_ref())?;
        let (from, to) = (file(bucket, key)?, new_file(&input.bucket, &input.key)?);
        let replaces = input.metadata_directive.as_ref();
        let replaces = replaces.is_some_and(|it| it.as_str() == MetadataDirective::REPLACE);
        if from == to && !replaces {
            return Err(s3_error!(
                InvalidRequest,
                "an object is copied onto itself only to change its metadata"
            ));
        }
        let entry = pool.stat_unjudged(&from).await.map_err(errors::of)?.entry;
        let tag = etag(entry.metadata.as_ref(), entry.digest);
        let conditions = ReadConditions {
            if_match: input.copy_source_if_match.take(),
            if_none_match: input.copy_source_if_none_match.take(),
            if_modified_since: input.copy_source_if_modified_since.take(),
            if_unmodified_since: input.copy_source_if_unmodified_since.take(),
        };
        if conditions.check(&tag, entry.mtime).is_err() {
            return Err(super::metadata::failed());
        }
        let metadata = match replaces {
            true => Some(noted!(input)?),
            false => None,
        };
        copy(&pool, &from, &to, metadata).await?;
        let copied = pool.stat_unjudged(&to).await.map_err(errors::of)?.entry;
        let result = CopyObjectResult {
            e_tag: Some(etag(copied.metadata.as_ref(), copied.digest)),
            last_modified: Some(timestamp(copied.mtime)),
            ..CopyObjectResult::default()
        };
        done(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let pool = self.pool(&request).await?;
        refuse_version(request.input.version_id.as_ref())?;
        remove(&pool, &request.input.bucket, &request.input.key).await?;
        done(DeleteObjectOutput::default())
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let pool = self.pool(&request).await?;
        let DeleteObjectsInput { bucket, delete, .. } = request.input;
        let quiet = delete.quiet.unwrap_or(false);
        let (mut deleted, mut failed) = (Vec::new(), Vec::new());
        for ObjectIdentifier { key, version_id, .. } in delete.objects {
            let removed = match refuse_version(version_id.as_ref()) {
                Ok(()) => remove(&pool, &bucket, &key).await,
                refused => refused,
            };
            match removed {
                Ok(()) if quiet => {}
                Ok(()) => {
                    deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() })
                }
                Err(why) => failed.push(Error {
                    code: Some(why.code().as_str().to_owned()),
                    message: why.message().map(str::to_owned),
                    key: Some(key),
                    version_id,
                }),
            }
        }
        done(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(failed),
            ..DeleteObjectsOutput::default()
        })
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let pool = self.pool(&request).await?;
        let mut input = request.input;
        let path = new_file(&input.bucket, &input.key)?;
        let metadata = noted!(input)?;
        let upload = Upload::begin(&pool, path, metadata).await?;
        done(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload.id()),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..CreateMultipartUploadOutput::default()
        })
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let pool = self.pool(&request).await?;
        let S3Request { input, headers, trailing_headers, .. } = request;
        let path = new_file(&input.bucket, &input.key)?;
        let upload = Upload::open(&pool, path, &input.upload_id).await?;
        let bytes = input.content_length.and_then(|length| u64::try_from(length).ok());
        let algorithm = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let said = SaidOfBody::of(&headers, algorithm, trailing_headers);
        let stored = upload.put(input.part_number, input.body, bytes, &said).await?;
        let checksum = stored.checksum;
        done(UploadPartOutput {
            e_tag: Some(ETag::Strong(super::checksums::hex(&stored.md5))),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..UploadPartOutput::default()
        })
    }

    async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let pool = self.pool(&request).await?;
        let input = request.input;
        let path = new_file(&input.bucket, &input.key)?;
        let upload = Upload::open(&pool, path, &input.upload_id).await?;
        let most = most_keys(input.max_parts);
        let (parts, more) = upload.parts(input.part_number_marker.unwrap_or(0), most).await?;
        done(ListPartsOutput {
            next_part_number_marker: parts.last().and_then(|part| part.part_number),
            is_truncated: Some(more),
            parts: Some(parts),
            max_parts: Some(most as i32),
            part_number_marker: input.part_number_marker,
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            ..ListPartsOutput::default()
        })
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let pool = self.pool(&request).await?;
        let input = request.input;
        let path = new_file(&input.bucket, &input.key)?;
        let upload = Upload::open(&pool, path.clone(), &input.upload_id).await?;
        let condition =
            writing::condition(&pool, &path, input.if_match, input.if_none_match).await?;
        let named = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let tag = upload.complete(condition, named).await?;
        done(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(tag),
            ..CompleteMultipartUploadOutput::default()
        })
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let pool = self.pool(&request).await?;
        let path = new_file(&request.input.bucket, &request.input.key)?;
        Upload::open(&pool, path, &request.input.upload_id).await?.end().await?;
        done(AbortMultipartUploadOutput::default())
    }
}

/// Refuses a request for an old version: they have no numbers in S3 here.
fn refuse_version<V: AsRef<str>>(version: Option<&V>) -> S3Result<()> {
    match version {
        Some(version) if version.as_ref() != "null" => {
            Err(s3_error!(NotImplemented, "old versions are read with `potluck cat --version-id`"))
        }
        _ => Ok(()),
    }
}

async fn remove(pool: &Pool, bucket: &str, key: &str) -> S3Result<()> {
    let (path, is_dir) = match named(bucket, key).map_err(errors::of_key)? {
        NamedObject::File(path) => (path, false),
        NamedObject::Dir(path) => (path, true),
    };
    writing::remove(pool, &path, is_dir).await.map_err(errors::of)
}

/// Copies an object; with `metadata` the copy has that instead of the source's. Inside a space no byte moves.
async fn copy(
    pool: &Pool,
    from: &PoolPath,
    to: &PoolPath,
    metadata: Option<FileMetadata>,
) -> S3Result<()> {
    if metadata.is_none() && from.space() == to.space() {
        let copied = pool.copy_within(from, to, false, Condition::Always, None).await;
        let failed = copied.map_err(errors::of)?.failed.into_iter().next();
        match failed {
            None => return Ok(()),
            Some(failed) if failed.lacks_holders() => {} // it is read and written
            Some(failed) => return Err(errors::of(failed.failure)),
        }
    }
    let source = pool.open_leased(from).await.map_err(errors::of)?;
    let options = PutOptions { bytes: Some(source.size()), ..PutOptions::default() };
    let writer = pool.create(to, &options, Attributes::default()).await;
    let mut writer = writer.map_err(errors::of)?;
    writer.append(&source).await.map_err(errors::of)?;
    let content = source.metadata();
    let mut metadata = metadata.unwrap_or_else(|| content.clone());
    metadata.etag = content.etag.clone();
    writer.set_metadata(metadata);
    writer.finish().await.map_err(errors::of).map(drop)
}
