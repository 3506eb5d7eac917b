//! Collects the refusals that are still to be written, so that each member gets few lines.

use potluck_core::clock::Tick;
use potluck_core::ids::MemberId;
use potluck_wire::control::{AuditEntry, AuditKind};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The time within which repetitions of a refusal are one entry.
const WINDOW: Duration = Duration::from_secs(60);
/// The most different refusals of one member that are told apart in a window; further ones are counted together. All
/// callers who are no members share one such number.
const TOLD_APART: usize = 20;

/// A call that was refused, as an entry of the log.
#[derive(Debug)]
pub struct LoggedRefusal(pub AuditEntry);

/// The refusals of the last minute, for each member apart.
#[derive(Debug, Default)]
pub struct Refusals {
    sources: HashMap<Option<MemberId>, Source>,
    /// The first refusals of their kind in a window, to be written as they are.
    fresh: Vec<AuditEntry>,
}

#[derive(Debug)]
struct Source {
    began: Tick,
    /// The refusals that are told apart, each with the number of its repetitions, which may be 0.
    again: BTreeMap<Subject, (AuditEntry, u64)>,
    /// The last of the refusals that are not told apart, and how many there were.
    others: Option<(AuditEntry, u64)>,
}

/// The call and the text of a refusal. Refusals of a member with the same call and text are one entry.
type Subject = (String, String);

impl Refusals {
    /// Notes a refusal.
    pub fn add(&mut self, LoggedRefusal(entry): LoggedRefusal, now: Tick) {
        let new = || Source { began: now, again: BTreeMap::new(), others: None };
        let source = self.sources.entry(entry.member).or_insert_with(new);
        let subject = (entry.call.clone(), entry.what.clone());
        let is_room = source.again.len() < TOLD_APART;
        match source.again.get_mut(&subject) {
            Some((_, times)) => *times += 1,
            None if is_room => {
                self.fresh.push(entry.clone());
                source.again.insert(subject, (entry, 0));
            }
            None => {
                let before = source.others.take().map_or(0, |(_, times)| times);
                source.others = Some((entry, before + 1));
            }
        }
    }

    /// Takes the entries that are due: new refusals, and the repetitions of windows that are over.
    pub fn due(&mut self, now: Tick, wall_ms: i64) -> Vec<AuditEntry> {
        let mut due = std::mem::take(&mut self.fresh);
        let is_over = |source: &Source| now.saturating_sub(source.began) >= WINDOW;
        self.sources.retain(|_, source| {
            if !is_over(source) {
                return true;
            }
            let again = std::mem::take(&mut source.again).into_values();
            let again = again.filter(|(_, times)| *times > 0).map(|(entry, times)| AuditEntry {
                at_wall_ms: wall_ms,
                what: format!("again: {}", entry.what),
                times,
                ..entry
            });
            due.extend(again);
            due.extend(source.others.take().map(|(entry, times)| AuditEntry {
                at_wall_ms: wall_ms,
                kind: AuditKind::Refused,
                what: format!("others, the last of them: {}", entry.what),
                times,
                ..entry
            }));
            false
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(member: u32, what: &str) -> LoggedRefusal {
        LoggedRefusal(AuditEntry {
            number: 0,
            at_wall_ms: 0,
            kind: AuditKind::Refused,
            member: Some(MemberId(member)),
            name: None,
            role: None,
            through: None,
            from: String::new(),
            call: "open".into(),
            what: what.into(),
            code: None,
            times: 1,
        })
    }

    fn told(entries: Vec<AuditEntry>) -> Vec<(String, u64)> {
        entries.into_iter().map(|entry| (entry.what, entry.times)).collect()
    }

    #[test]
    fn repeated_refusals_are_audited_once_a_minute() {
        let mut refusals = Refusals::default();
        let second = Tick::from_secs(1);
        for _ in 0..1000 {
            refusals.add(refusal(1, "no"), second);
        }
        refusals.add(refusal(2, "no"), second);
        let first = told(refusals.due(second, 0));
        assert_eq!(first, [("no".into(), 1), ("no".into(), 1)], "of each member");
        refusals.add(refusal(1, "no"), second);
        assert!(refusals.due(Tick::from_secs(60), 0).is_empty());
        assert_eq!(told(refusals.due(Tick::from_secs(61), 7)), [("again: no".into(), 1000)]);
        refusals.add(refusal(1, "no"), Tick::from_secs(62));
        assert_eq!(told(refusals.due(Tick::from_secs(62), 0)).len(), 1);
    }

    #[test]
    fn audit_lines_per_member_are_rate_limited() {
        let mut refusals = Refusals::default();
        for number in 0..100_000 {
            refusals.add(refusal(1, &format!("no space {number}")), Tick::ZERO);
        }
        assert_eq!(refusals.due(Tick::ZERO, 0).len(), TOLD_APART);
        let rest = told(refusals.due(Tick::from_secs(60), 0));
        let others = "others, the last of them: no space 99999".to_owned();
        assert_eq!(rest, [(others, 100_000 - TOLD_APART as u64)]);
        assert!(refusals.sources.is_empty(), "nothing is kept of who is quiet");
    }
}
