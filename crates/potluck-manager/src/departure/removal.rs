//! Removal of donors, which is refused if files need the donors, unless the caller accepts the effects.

use super::{Departure, Departures, LessSafe, Loss, Outlook};
use crate::shared_pool::SharedPool;
use potluck_core::chunk::Digest;
use potluck_core::ids::DonorId;
use potluck_core::size::count;
use potluck_wire::control::{Going, MayGo, RemovalNeeds};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;

/// The effects that the caller accepts when it removes a donor.
#[derive(Debug, Clone, Copy)]
pub struct RemovalTerms {
    /// True if files may be less safe until repair has made the rest.
    pub now: bool,
    /// The digest ([`Loss::digest`]) of the list of files that may be lost.
    pub agreed: Option<Digest>,
}

/// Donors that may go. Until this is dropped no file is committed that counts on them.
pub struct DonorsBeingRemoved {
    pool: SharedPool,
    donors: BTreeSet<DonorId>,
}

impl Drop for DonorsBeingRemoved {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        self.donors.iter().for_each(|donor| pool.spare_donor(*donor));
    }
}

impl Departures {
    /// Lets donors go together, or fails with the reason and what to do. The caller removes the donors before it drops
    /// the returned guard: otherwise a file might be committed after the look with all its copies at the donors.
    pub async fn allow(
        &self,
        donors: BTreeSet<DonorId>,
        removal: RemovalTerms,
    ) -> Result<DonorsBeingRemoved, Failure> {
        let condemned = DonorsBeingRemoved { pool: self.pool.clone(), donors: donors.clone() };
        let names: Vec<String> = {
            let mut pool = self.pool.lock();
            donors.iter().for_each(|donor| pool.condemn_donor(*donor));
            donors.iter().map(|donor| pool.named(*donor)).collect()
        };
        if donors.is_empty() {
            return Ok(condemned);
        }
        // After this turn of the catalog's writer, files whose commits counted on the donors are in the catalog.
        self.catalog.in_turn().await?;
        let departure = Departure { donors, over: None, told: None };
        let outlook = self.look(&departure).await?;
        let may_go = self.may_go(&departure, outlook.leaving).await?;
        removal.judge(&names.join(" and "), &outlook, &may_go)?;
        Ok(condemned)
    }
}

impl RemovalTerms {
    fn judge(self, name: &str, outlook: &Outlook, may_go: &MayGo) -> Result<(), Failure> {
        let Outlook { loss, less_safe, .. } = outlook;
        let conflict = |code, what: String| Failure::new(ErrorKind::Conflict, code, what);
        match self.agreed {
            Some(agreed) if agreed == loss.digest() => return Ok(()),
            Some(_) if loss.files > 0 => return Err(not_agreed(loss)),
            _ => {}
        }
        let needs = needs(loss, less_safe, may_go);
        if needs.is_met(self.now || self.agreed.is_some(), false) {
            return Ok(());
        }
        let drain = format!("move what it holds to others first: `potluck drain {name}`");
        if needs == RemovalNeeds::Force {
            let what = only_at(name, loss.files, &loss.paths);
            let hint = format!("{drain}; `potluck nodes rm {name} --force` loses these files");
            return Err(conflict(code::NOT_EMPTY, what).hint(hint));
        }
        let MayGo { verdict, why, advice } = may_go;
        if needs == RemovalNeeds::Time {
            let what = format!("whether {name} may go is not known yet: {why}");
            return Err(Failure::new(ErrorKind::Retry, code::STUCK, what)
                .hint("ask again in a moment; --now waits for nothing"));
        }
        let files = count(less_safe.files, "file");
        let what = format!(
            "{files} would be less safe than promised without {name}: {}",
            shown(less_safe.files, &less_safe.paths)
        );
        let first = match verdict {
            Going::Stuck => format!("{why}; {advice}"),
            _ => drain,
        };
        let hint = format!("{first}; `potluck nodes rm {name} --now` removes it all the same");
        Err(conflict(code::NOT_EMPTY, what).hint(hint))
    }
}

/// Returns the least that the caller has to accept to remove donors with these effects, by whether they may go.
pub fn needs(loss: &Loss, less_safe: &LessSafe, may_go: &MayGo) -> RemovalNeeds {
    match (loss.files, less_safe.files) {
        (0, _) if may_go.verdict == Going::NotKnown => RemovalNeeds::Time,
        (0, 0) => RemovalNeeds::Nothing,
        (0, _) => RemovalNeeds::Now,
        _ => RemovalNeeds::Force,
    }
}

/// Makes the failure for a list of lost files that changed since somebody agreed to it.
pub fn not_agreed(loss: &Loss) -> Failure {
    let (files, paths) = (count(loss.files, "file"), shown(loss.files, &loss.paths));
    let what =
        format!("what would be lost is not what was agreed to: by now it is {files}, {paths}");
    Failure::new(ErrorKind::Conflict, code::NOT_AGREED, what)
        .hint("look at the whole list with `-n`, and decide again")
}

fn only_at(name: &str, files: u64, paths: &[String]) -> String {
    let need = if files == 1 { "file needs" } else { "files need" };
    format!("{files} {need} what only {name} holds: {}", shown(files, paths))
}

fn shown(files: u64, paths: &[String]) -> String {
    let more = if files > 3 { ", …" } else { "" };
    paths.iter().take(3).cloned().collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::VersionId;

    #[test]
    fn a_donor_that_files_need_goes_only_when_its_remover_says_so() {
        let one = vec!["pot://lab/a".to_owned()];
        let less_safe = LessSafe { paths: one.clone(), files: 1 };
        let weak = Outlook { less_safe, ..Outlook::default() };
        let loss = Loss { paths: one, files: 1, versions: vec![VersionId(7)], damaged: 0 };
        let lossy = Outlook { loss: loss.clone(), ..weak.clone() };
        let plain = RemovalTerms { now: false, agreed: None };
        let now = RemovalTerms { now: true, ..plain };
        let force = |loss: &Loss| RemovalTerms { agreed: Some(loss.digest()), ..plain };
        let moves = MayGo { verdict: Going::AfterMoving, ..MayGo::default() };
        let judge = |removal: RemovalTerms, outlook: &Outlook| {
            removal.judge("desk", outlook, &moves).map_err(|why| (why.code.to_string(), why.hint))
        };
        let refused = judge(plain, &weak).expect_err("needed");
        assert!(refused.1.contains("drain desk") && refused.1.contains("--now"), "{refused:?}");
        assert_eq!(judge(now, &weak), Ok(()));
        assert_eq!(needs(&loss, &lossy.less_safe, &moves), RemovalNeeds::Force);
        assert_eq!(needs(&weak.loss, &weak.less_safe, &moves), RemovalNeeds::Now);
        assert_eq!(needs(&weak.loss, &weak.less_safe, &MayGo::default()), RemovalNeeds::Time);
        for removal in [plain, now] {
            let refused = judge(removal, &lossy).expect_err("lost");
            assert_eq!(refused.0, code::NOT_EMPTY);
            assert!(refused.1.contains("--force"), "{refused:?}");
        }
        assert_eq!(judge(force(&loss), &lossy), Ok(()));
        let more = Loss { versions: vec![VersionId(8)], ..loss };
        assert_eq!(judge(force(&more), &lossy).expect_err("another list").0, code::NOT_AGREED);
        assert_eq!(judge(force(&more), &weak), Ok(()), "nothing is lost any more");

        let unknown = MayGo::default();
        let idle = Outlook::default();
        let asked = plain.judge("desk", &idle, &unknown).expect_err("not known");
        assert_eq!(asked.kind, ErrorKind::Retry);
        assert_eq!(now.judge("desk", &idle, &unknown), Ok(()));
        assert_eq!(judge(plain, &idle), Ok(()), "what is there has enough copies elsewhere");
    }
}
