//! Answers the calls that purge old steps of a series, and that pin steps.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::tasks::series::SeriesPurger;
use potluck_catalog::Catalog;
use potluck_core::rights::Right;
use potluck_wire::control::{Done, Pin, SeriesPurge, SeriesSteps};
use potluck_wire::error::{ErrorKind, Failure, code};

handles! {
    /// The handles for answering calls about series.
    pub struct SeriesCalls {
        catalog: Catalog,
        purger: SeriesPurger,
        access: Access,
    }
}

impl Answer<SeriesPurge> for SeriesCalls {
    async fn answer(
        self,
        call: SeriesPurge,
        caller: CallingMember,
    ) -> Result<SeriesSteps, Failure> {
        let SeriesPurge { dir, dry_run } = call;
        let right = if dry_run { Right::List } else { Right::Write };
        self.access.need_in_a_space(&caller, right, &dir).await?;
        if !dry_run && !self.purger.knows_readers() {
            let what = "the manager was started again less than a minute ago, and does not know yet who reads which step";
            return Err(Failure::new(ErrorKind::Retry, code::STUCK, what)
                .hint("it purges them by itself then; -n shows which"));
        }
        Ok(self.purger.purge(dir, dry_run).await?)
    }
}

impl Answer<Pin> for SeriesCalls {
    async fn answer(self, call: Pin, caller: CallingMember) -> Result<Done, Failure> {
        let Pin { path, pinned } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        self.catalog.pin(path, pinned).await?;
        Ok(Done {})
    }
}
