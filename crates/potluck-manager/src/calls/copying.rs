//! Copies inside the pool, which move no bytes.

use super::Answer;
use crate::callers::Caller;
use crate::failure;
use crate::service::Service;
use potluck_catalog::Error;
use potluck_catalog::copies::{Copied, CopyRequest, Outcome};
use potluck_pool::redundancy::Version;
use potluck_wire::control::{CopiedFile, CopiedFiles, CopyFiles, NotCopied};
use potluck_wire::error::Failure;
use std::sync::Arc;

impl Answer for CopyFiles {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<CopiedFiles, Failure> {
        let Self { from, to, recursive, condition, redundancy, copy, page, after } = self;
        if let Some(redundancy) = redundancy {
            let joined = service.pool().donor_count();
            if redundancy.donors() as usize > joined {
                return Err(failure::of_redundancy(redundancy, joined));
            }
        }
        let unseen = {
            let kept = service.scan_state.kept();
            kept.spaces.get(to.space()).is_none_or(|space| space.files == 0)
        };
        let wanted = CopyRequest { from, to, recursive, condition, asked: redundancy, after };
        let told = |copied: &Copied| {
            serde_json::to_string(&reply(copied)).map_err(|why| Error::Bug(why.to_string()))
        };
        match service.catalog.copy_files((copy, page), wanted, service.when(), told).await? {
            Outcome::Repeated(text) => serde_json::from_str(&text)
                .map_err(|why| Failure::from(Error::Damaged(format!("a kept reply: {why}")))),
            Outcome::Fresh(copied) => {
                let now = service.time.tick();
                let open =
                    |version: &Version| version.safe_wall_ms.is_none() || version.goal.is_some();
                if unseen || copied.files.iter().any(|(_, file)| file.as_ref().is_ok_and(open)) {
                    // As after a commit: what is to be made or changed is found by a scan, and of
                    // a space that none has seen with files nobody can say how safe it is.
                    service.scan_state.changed(now);
                }
                service.pool().in_use_again(&copied.again, now);
                service.chores.notify_one(); // replaced versions leave chunks behind
                Ok(reply(&copied))
            }
        }
    }
}

fn reply(copied: &Copied) -> CopiedFiles {
    let mut reply = CopiedFiles { next: copied.next.clone(), ..CopiedFiles::default() };
    for (path, outcome) in &copied.files {
        let path = path.clone();
        match outcome {
            Ok(version) => reply.files.push(CopiedFile {
                path,
                version: version.id,
                bytes: version.size,
                changing_to: version.goal,
            }),
            Err(why) => {
                let failure = Failure::from(why.clone());
                reply.failed.push(NotCopied { path, failure });
            }
        }
    }
    reply
}
