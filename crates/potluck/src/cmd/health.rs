//! Words for people about how safe files are, and about policies.

use crate::output::{count, stated_time};
use potluck_core::policy::{KeptTime, KeptVersions, Policy, Redundancy, Retention, Width};
use potluck_core::size::format_size;
use potluck_wire::control::{Health, HealthLevel};

/// Says what a file's health means to its owner.
pub fn sentence(health: &Health) -> String {
    if health.in_catalog {
        return "in the catalog: no donor's death loses it; as safe as the manager's disk and the \
                copies of the catalog (`potluck status`)"
            .into();
    }
    let may_go = if health.silent { health.tolerates_now } else { health.tolerates };
    let mut text = match (health.level, may_go) {
        (HealthLevel::Unreadable, _) => {
            format!(
                "cannot be read whole now: {} missing",
                count(health.unreadable.max(1), "chunk")
            )
        }
        (_, Some(0)) if health.promised == 0 => {
            "one copy, as its policy asks: lost with the donors it is on".into()
        }
        (_, Some(0)) => "tolerates no further dead donor".into(),
        (_, tolerates) => {
            format!("tolerates {}", count(tolerates.unwrap_or(0).into(), "more dead donor"))
        }
    };
    if let Some(back) = health.tolerates.filter(|_| health.silent) {
        text.push_str(&format!(
            " while donors it is on are silent or away, {back} when they are back"
        ));
    }
    if health.level == HealthLevel::Incomplete {
        let why = match (health.incomplete, health.changing_to) {
            // The file was written with less redundancy than its directory asks for.
            (0, Some(goal)) => format!("being changed to {goal}"),
            // Copies are being made for the first time or again, or their donors have not reported them yet.
            (lacking, _) => format!("{} to be completed", count(lacking, "chunk")),
        };
        text.push_str(&format!(" (below policy, which promises {}; {why})", health.promised));
    }
    text
}

/// Says since when all that a file's policy promises is there, where that is known, or that the file is in its unsafe
/// window: the time from the end of its write until all is there, or from a loss until it is made again. Nothing is said
/// of a policy that tolerates no dead donor.
pub fn window(health: &Health) -> Option<String> {
    if health.promised == 0 {
        return None;
    }
    match (health.level, health.safe_since_ms) {
        (HealthLevel::Safe | HealthLevel::Waiting, since) => {
            Some(format!("as safe as promised since {}", stated_time(since?)))
        }
        (_, Some(since)) => {
            Some(format!("in its unsafe window again, after it closed at {}", stated_time(since)))
        }
        (_, None) => {
            Some("in its unsafe window: not all that its policy promises is there yet".into())
        }
    }
}

/// Says which redundancy keeps files, on how many donors, and how many of them may die.
pub fn redundancy(redundancy: Redundancy) -> String {
    let may_die = match redundancy.tolerates() {
        0 => "no donor may die".into(),
        many => format!("{} may die", count(many.into(), "donor")),
    };
    format!("{redundancy} on {}: {may_die}", count(redundancy.donors().into(), "donor"))
}

/// Formats a stripe width.
pub fn width(width: Width) -> String {
    match width {
        Width::Auto => format!("up to {} donors", Width::AUTO_MOST),
        Width::Donors(donors) => count(donors.into(), "donor"),
    }
}

/// Formats the size of the chunks that files are cut into.
pub fn chunks(policy: &Policy) -> String {
    let most = format_size(policy.chunk_size.into());
    match policy.is_cut_by_content() {
        true => format!("up to {most}, cut by content"),
        false => most,
    }
}

/// Says for how long removed files are kept.
pub fn removed(policy: &Policy) -> String {
    policy.retention().removed.to_string()
}

/// Formats a policy in one line.
pub fn policy(policy: &Policy) -> String {
    let protocol = match policy.redundancy() {
        Redundancy::Copies(1) => String::new(),
        Redundancy::Copies(_) => format!(", {}", policy.mirror),
        Redundancy::Ec(_) => format!(", race {}", policy.race),
    };
    let kept = match policy.retention() {
        Retention { replaced: KeptVersions::NONE, removed: KeptTime::NONE } => String::new(),
        Retention { replaced, .. } => {
            format!(", old versions kept: {replaced}, what is removed: {}", removed(policy))
        }
    };
    format!(
        "{}{protocol}, stripes of {}, chunks of {}, ack {}, {}{kept}",
        policy.redundancy(),
        width(policy.stripe_width),
        chunks(policy),
        policy.ack,
        match (policy.sealed, policy.strict) {
            (true, false) => "sealed",
            (true, true) => "sealed, strict",
            (false, false) => "plain",
            (false, true) => "plain, strict",
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_levels_are_explained() {
        use HealthLevel::{Incomplete, Safe, Unreadable, Waiting};
        let health = |level, tolerates, incomplete, unreadable| Health {
            level,
            tolerates,
            promised: 2,
            incomplete,
            unreadable,
            ..Health::default()
        };
        assert_eq!(
            sentence(&health(Incomplete, Some(1), 1, 0)),
            "tolerates 1 more dead donor (below policy, which promises 2; 1 chunk to be completed)"
        );
        assert_eq!(
            sentence(&health(Incomplete, Some(0), 0, 0)).split(" (").next(),
            Some("tolerates no further dead donor")
        );
        let one_copy = Health { promised: 0, ..health(Safe, Some(0), 0, 0) };
        assert!(sentence(&one_copy).starts_with("one copy, as its policy asks"));
        assert_eq!((window(&one_copy), window(&health(Safe, Some(2), 0, 0))), (None, None));
        let since = Health { safe_since_ms: Some(0), ..health(Safe, Some(2), 0, 0) };
        assert!(window(&since).is_some_and(|said| said.starts_with("as safe as promised since")));
        let open = window(&health(Incomplete, Some(1), 1, 0)).expect("open");
        assert!(open.starts_with("in its unsafe window: "), "{open}");
        let changing_to = Some(Redundancy::Copies(3));
        let written_with_less = Health { changing_to, ..health(Incomplete, Some(0), 0, 0) };
        assert!(
            sentence(&written_with_less)
                .ends_with("(below policy, which promises 2; being changed to 3 copies)")
        );
        assert!(sentence(&health(Unreadable, None, 0, 4)).contains("4 chunks missing"));
        let (silent, tolerates_now) = (true, Some(0));
        let silent = Health { silent, tolerates_now, ..health(Waiting, Some(2), 0, 0) };
        assert_eq!(
            sentence(&silent),
            "tolerates no further dead donor while donors it is on are silent or away, 2 when they are back"
        );
    }
}
