//! `potluck cat`: writes files, or a part of each, to standard output.

use super::several::Several;
use super::{Ending, patterns};
use crate::args::CatArgs;
use crate::output::{Output, Piped};
use potluck_client::{ByteRange, Pool, Quiet, cat};
use potluck_core::ids::VersionId;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

pub async fn run(args: CatArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let range = args.range.as_deref().map_or(Ok(ByteRange::ALL), parse_range)?;
    let mut several = Several::default();
    if args.version_id.is_some() && args.paths.len() > 1 {
        let what = "--version-id is about one file";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("write old versions one by one"));
    }
    for path in &patterns::expand(&args.paths, client).await? {
        let path = &match args.version_id {
            Some(number) => client.version_at(path, VersionId(number)).await?,
            None => path.clone(),
        };
        let written = cat(client, path, range, None, Piped::for_content(), Arc::new(Quiet)).await;
        several.note(path, written.map(drop));
    }
    several.end(output)
}

/// Parses a range as in HTTP: `FIRST-LAST` (both included), `FIRST-`, or `-COUNT`.
fn parse_range(text: &str) -> Result<ByteRange, Failure> {
    let bad = || {
        Failure::new(ErrorKind::Usage, code::BAD_REQUEST, format!("“{text}” is not a byte range"))
            .hint("write FIRST-LAST, FIRST- or -COUNT, in bytes; both ends are included")
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
    let (first, last) = text.split_once('-').ok_or_else(bad)?;
    match (first, last) {
        ("", count) => Ok(ByteRange::Last(number(count)?)),
        (first, "") => Ok(ByteRange::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(bad());
            }
            Ok(ByteRange::From(first, Some(last.saturating_add(1))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_as_in_http() {
        assert_eq!(parse_range("0-1023"), Ok(ByteRange::From(0, Some(1024))));
        assert_eq!(parse_range("5-"), Ok(ByteRange::From(5, None)));
        assert_eq!(parse_range("-100"), Ok(ByteRange::Last(100)));
        for bad in ["", "-", "x-1", "5-4", "7"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
