//! The checksums of a body that arrives: what the client says of it is compared with what came.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use potluck_core::file_metadata::FileMetadata;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::Checksum;
use s3s::{S3Result, TrailingHeaders, s3_error};

/// The header by which a client says which checksum follows its body.
const TRAILER: &str = "x-amz-trailer";

/// The checksums that S3 knows beside MD5, by the names of their headers.
const HEADERS: [&str; 5] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// What a client says of the body of its request.
pub struct SaidOfBody {
    /// The MD5 of the body in base64.
    md5: Option<String>,
    /// The checksums that came before the body, in the order of [`HEADERS`].
    before: [Option<String>; HEADERS.len()],
    /// True for each checksum that is to be worked out.
    wanted: [bool; HEADERS.len()],
    /// The headers that come behind the body.
    behind: Option<TrailingHeaders>,
}

impl SaidOfBody {
    /// Reads what the headers of a request say of its body; `algorithm` names a checksum that the client asks for.
    pub fn of(
        headers: &HeaderMap,
        algorithm: Option<&str>,
        behind: Option<TrailingHeaders>,
    ) -> Self {
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.trim().to_owned());
        let before = HEADERS.map(text);
        let trailer = text(TRAILER).unwrap_or_default().to_ascii_lowercase();
        let asked = algorithm.map(|name| format!("x-amz-checksum-{}", name.to_ascii_lowercase()));
        let wanted = std::array::from_fn(|at| {
            let name = HEADERS[at];
            let follows = trailer.split(',').any(|it| it.trim() == name);
            before[at].is_some() || follows || asked.as_deref() == Some(name)
        });
        Self { md5: text("content-md5"), before, wanted, behind }
    }

    /// Begins to work out the checksums.
    pub fn begin(&self) -> BodyDigests {
        let [crc32, crc32c, crc64nvme, sha1, sha256] = self.wanted;
        let checksums = ChecksumHasher {
            crc32: crc32.then(Crc32::new),
            crc32c: crc32c.then(Crc32c::new),
            crc64nvme: crc64nvme.then(Crc64Nvme::new),
            sha1: sha1.then(Sha1::new),
            sha256: sha256.then(Sha256::new),
        };
        BodyDigests { md5: Md5::new(), checksums }
    }

    /// Compares what came with what was said, and returns what is kept of it.
    ///
    /// Errors: `BadDigest`.
    pub fn check(&self, came: BodyDigests) -> S3Result<BodyChecked> {
        let md5 = came.md5.finalize();
        let md5: &[u8] = md5.as_ref();
        if self.md5.as_ref().is_some_and(|said| *said != STANDARD.encode(md5)) {
            return Err(s3_error!(
                BadDigest,
                "the body does not have the MD5 that the request names"
            ));
        }
        let checksum = came.checksums.finalize();
        let values = values(&checksum);
        for (at, name) in HEADERS.into_iter().enumerate() {
            let behind = self.behind.as_ref().and_then(|behind| {
                behind.read(|headers| Some(headers.get(name)?.to_str().ok()?.trim().to_owned()))
            });
            let said = self.before[at].clone().or(behind.flatten());
            if let (Some(said), Some(came)) = (said, values[at])
                && said != *came
            {
                return Err(s3_error!(
                    BadDigest,
                    "the body does not have the {} that was said",
                    name
                ));
            }
        }
        let md5 = md5.try_into().unwrap_or_default();
        Ok(BodyChecked { md5, checksum })
    }
}

/// The digests of the bytes that came so far.
pub struct BodyDigests {
    md5: Md5,
    checksums: ChecksumHasher,
}

impl BodyDigests {
    /// Takes these bytes into the digests.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.checksums.update(bytes);
    }
}

/// The digests of a body that is what its client said.
pub struct BodyChecked {
    /// The MD5 of the body.
    pub md5: [u8; 16],
    /// The other checksums that were worked out, in base64.
    pub checksum: Checksum,
}

impl BodyChecked {
    /// Notes the digests in the metadata of a file that has just this content.
    pub fn note(&self, metadata: &mut FileMetadata) {
        metadata.etag = Some(hex(&self.md5));
        for (name, value) in HEADERS.into_iter().zip(values(&self.checksum)) {
            if let Some(value) = value {
                metadata.headers.insert(name.into(), value.clone());
            }
        }
    }
}

/// Returns the checksums that are noted of a file.
pub fn noted(metadata: &FileMetadata) -> Checksum {
    let value = |at: usize| metadata.headers.get(HEADERS[at]).cloned();
    Checksum {
        checksum_crc32: value(0),
        checksum_crc32c: value(1),
        checksum_crc64nvme: value(2),
        checksum_sha1: value(3),
        checksum_sha256: value(4),
        ..Checksum::default()
    }
}

/// Returns checksums in the order of [`HEADERS`].
fn values(checksum: &Checksum) -> [Option<&String>; HEADERS.len()] {
    [
        checksum.checksum_crc32.as_ref(),
        checksum.checksum_crc32c.as_ref(),
        checksum.checksum_crc64nvme.as_ref(),
        checksum.checksum_sha1.as_ref(),
        checksum.checksum_sha256.as_ref(),
    ]
}

/// Returns bytes in hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the entity tag of an object that was uploaded in parts: the MD5 of the MD5s of the parts, and their number.
pub fn etag_of_parts<'p>(parts: impl ExactSizeIterator<Item = &'p [u8; 16]>) -> String {
    let (mut md5, count) = (Md5::new(), parts.len());
    parts.for_each(|part| md5.update(part));
    let md5 = md5.finalize();
    format!("{}-{count}", hex(md5.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(said: &SaidOfBody, body: &[u8]) -> S3Result<BodyChecked> {
        let mut digests = said.begin();
        digests.update(body);
        said.check(digests)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (http::HeaderName::from_static(name), value.parse().expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn body_that_is_not_what_was_said_is_refused() {
        // The values are those of RFC 1321 and of the check input of CRC-32.
        let md5 =
            SaidOfBody::of(&headers(&[("content-md5", "kAFQmDzST7DWlj99KOF/cg==")]), None, None);
        let checked = came(&md5, b"abc").expect("the MD5 of abc");
        assert_eq!(hex(&checked.md5), "900150983cd24fb0d6963f7d28e17f72");
        assert!(came(&md5, b"abd").is_err());
        let crc = SaidOfBody::of(&headers(&[("x-amz-checksum-crc32", "y/Q5Jg==")]), None, None);
        assert!(came(&crc, b"123456789").is_ok());
        assert!(came(&crc, b"12345678").is_err());
    }

    #[test]
    fn checksum_that_is_asked_for_is_noted() {
        let said = SaidOfBody::of(&HeaderMap::new(), Some("CRC32"), None);
        let mut metadata = FileMetadata::default();
        came(&said, b"123456789").expect("nothing was said").note(&mut metadata);
        assert_eq!(noted(&metadata).checksum_crc32.as_deref(), Some("y/Q5Jg=="));
        assert_eq!(noted(&metadata).checksum_sha256, None);
        assert_eq!(metadata.etag.as_deref(), Some("25f9e794323b453885f5181f1b624d0b"));
    }

    #[test]
    fn tag_of_parts_is_the_md5_of_md5s_and_their_number() {
        let parts = [[0; 16], [1; 16]];
        let tag = etag_of_parts(parts.iter());
        assert!(tag.ends_with("-2") && tag.len() == 34, "{tag}");
        assert_ne!(tag, etag_of_parts(parts.iter().rev()));
    }
}
