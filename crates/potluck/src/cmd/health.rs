//! How safe a file is, in words.

use crate::output::{count, time};
use potluck_core::policy::{Policy, Redundancy};
use potluck_core::size::format_size;
use potluck_wire::control::Health;
use serde::Serialize;

/// What a file's health comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// As safe as promised.
    Safe,
    /// Readable, but less safe than promised.
    Incomplete,
    /// Something of it cannot be read now.
    Unreadable,
}

/// Judges a file's health.
pub fn standing(health: &Health) -> Standing {
    match health.tolerates {
        None => Standing::Unreadable,
        Some(_) if health.unreadable > 0 => Standing::Unreadable,
        Some(tolerates) if health.incomplete == 0 && tolerates >= health.promised => Standing::Safe,
        Some(_) => Standing::Incomplete,
    }
}

/// What a file's health means to its owner.
pub fn sentence(health: &Health) -> String {
    let mut text = match (standing(health), health.tolerates) {
        (Standing::Unreadable, _) => {
            format!(
                "cannot be read whole now: {} missing",
                count(health.unreadable.max(1), "chunk")
            )
        }
        (_, Some(0)) => "tolerates no further dead donor".into(),
        (_, tolerates) => {
            format!("tolerates {}", count(tolerates.unwrap_or(0).into(), "more dead donor"))
        }
    };
    if let Some(now) = fewer_now(health.tolerates, health.tolerates_now) {
        text.push_str(match now {
            0 => "; while donors it is on are silent, one more makes it unreadable",
            _ => "; fewer while donors it is on are silent",
        });
    }
    if standing(health) == Standing::Incomplete {
        let why = match (health.incomplete, health.changing_to) {
            // Written with less than its directory asks for.
            (0, Some(goal)) => format!("being changed to {goal}"),
            (lacking, _) => format!("{} to be made again", count(lacking, "chunk")),
        };
        text.push_str(&format!(" (promised: {}; {why})", health.promised));
    }
    text
}

/// How many more donors may go before something cannot be read, where silent ones make that fewer
/// than may die before something is lost.
pub fn fewer_now(tolerates: Option<u32>, now: Option<u32>) -> Option<u32> {
    now.filter(|now| tolerates.is_some_and(|tolerates| *now < tolerates))
}

/// The unsafe window: between the end of a write and the moment all that its policy promises was
/// there.
pub fn window(health: &Health) -> String {
    match (standing(health), health.safe_since_ms) {
        (Standing::Safe, Some(since)) => format!("closed since {} UTC", time(since)),
        (Standing::Safe, None) => "closed".into(),
        (_, Some(since)) => format!("open again; it was closed at {} UTC", time(since)),
        (_, None) => "open: not all that its policy promises is there yet".into(),
    }
}

/// What keeps files, and what it takes.
pub fn redundancy(redundancy: Redundancy) -> String {
    let may_die = match redundancy.tolerates() {
        0 => "no donor may die".into(),
        many => format!("{} may die", count(many.into(), "donor")),
    };
    format!("{redundancy} on {}: {may_die}", count(redundancy.donors().into(), "donor"))
}

/// A policy in one line.
pub fn policy(policy: &Policy) -> String {
    let protocol = match policy.redundancy() {
        Redundancy::Copies(1) => String::new(),
        Redundancy::Copies(_) => format!(", {}", policy.mirror),
        Redundancy::Ec(_) => format!(", race {}", policy.race),
    };
    format!(
        "{}{protocol}, stripes of {}, chunks of {}, ack {}, {}",
        policy.redundancy(),
        count(policy.stripe_width.into(), "donor"),
        format_size(policy.chunk_size.into()),
        policy.ack,
        if policy.sealed { "sealed" } else { "plain" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_promised_is_incomplete_and_missing_is_unreadable() {
        let health = |tolerates, incomplete, unreadable| Health {
            tolerates,
            promised: 2,
            incomplete,
            unreadable,
            ..Health::default()
        };
        assert_eq!(standing(&health(Some(2), 0, 0)), Standing::Safe);
        assert_eq!(standing(&health(Some(1), 0, 0)), Standing::Incomplete);
        assert_eq!(standing(&health(Some(2), 3, 0)), Standing::Incomplete);
        assert_eq!(standing(&health(None, 0, 1)), Standing::Unreadable);
        assert_eq!(
            sentence(&health(Some(1), 1, 0)),
            "tolerates 1 more dead donor (promised: 2; 1 chunk to be made again)"
        );
        assert_eq!(
            sentence(&health(Some(0), 0, 0)).split(" (").next(),
            Some("tolerates no further dead donor")
        );
        let written_with_less =
            Health { changing_to: Some(Redundancy::Copies(3)), ..health(Some(0), 0, 0) };
        assert_eq!(standing(&written_with_less), Standing::Incomplete);
        assert!(sentence(&written_with_less).ends_with("(promised: 2; being changed to 3 copies)"));
        assert!(sentence(&health(None, 0, 4)).contains("4 chunks missing"));
        let silent = Health { tolerates_now: Some(0), ..health(Some(2), 0, 0) };
        assert_eq!(
            sentence(&silent),
            "tolerates 2 more dead donors; while donors it is on are silent, one more makes it unreadable"
        );
    }
}
