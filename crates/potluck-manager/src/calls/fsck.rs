//! Listing files that are not as safe as they should be (PROMISES L1).

use super::Answer;
use crate::catalog::Error;
use crate::catalog::entries::{self, Place};
use crate::catalog::units;
use crate::catalog::versions::{self, Version};
use crate::catalog::walk::{Walk, What};
use crate::members::Caller;
use crate::pool::Standings;
use crate::service::Service;
use crate::survey::judge_file;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Damage, Fsck, FsckReport};
use potluck_wire::error::Failure;
use rusqlite::Connection;
use std::sync::Arc;

/// Chunks looked at for one reply, unless one file alone has more.
const PAGE_CHUNKS: u64 = 20_000;
/// Entries looked at for one reply.
const PAGE_ENTRIES: usize = 5000;

impl Answer for Fsck {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<FsckReport, Failure> {
        let standings = service.pool().standings(service.time.tick());
        let look = move |db: &Connection| {
            let mut look = Look { db, standings, asked: &self, report: FsckReport::default() };
            look.page()?;
            Ok(look.report)
        };
        Ok(service.catalog.read(look).await?)
    }
}

struct Look<'a> {
    db: &'a Connection,
    standings: Standings,
    asked: &'a Fsck,
    report: FsckReport,
}

impl Look<'_> {
    fn page(&mut self) -> Result<(), Error> {
        let path = &self.asked.path;
        let dir = match entries::existing(self.db, path)?.place {
            Place::Dir(dir) => dir,
            Place::File(version) => {
                return self.file(path.to_string(), &versions::get(self.db, version)?);
            }
        };
        let mut walk = Walk::new(self.db, dir, true, self.asked.after.as_deref())?;
        let mut chunks = 0;
        for _ in 0..PAGE_ENTRIES {
            let Some(item) = walk.next()? else {
                self.report.next = None;
                return Ok(());
            };
            self.report.next = Some(item.path.clone());
            if let What::File(version) = &item.what {
                chunks += version.chunks;
                self.file(below(path, &item.path), version)?;
            }
            if chunks >= PAGE_CHUNKS {
                break;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: String, version: &Version) -> Result<(), Error> {
        self.report.files += 1;
        let layout = units::layout(self.db, version)?;
        let judged = judge_file(version, &layout, &self.standings);
        let incomplete = self.asked.incomplete && judged.is_incomplete();
        if judged.health.unreadable > 0 || incomplete {
            let may_return = judged.health.unreadable > 0 && judged.may_return;
            self.report.found.push(Damage { path, health: judged.health, may_return });
        }
        Ok(())
    }
}

fn below(path: &PoolPath, relative: &str) -> String {
    if path.space().is_empty() { format!("{path}{relative}") } else { format!("{path}/{relative}") }
}
