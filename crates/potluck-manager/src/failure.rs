//! Makes the [`Failure`]s that tell a person why placement, a policy or a path was refused. The catalog makes those
//! for its own errors.

use crate::room_advice::room_advice;
use potluck_core::clock::Tick;
use potluck_core::path::BadPath;
use potluck_core::placement::Refusal;
use potluck_core::policy::{BadPolicy, Redundancy};
use potluck_core::size::count;
use potluck_pool::Pool;
use potluck_wire::error::{ErrorKind, Failure, code};

/// Returns the failure for a plan that cannot be made now in this pool for files kept by `redundancy`.
pub fn of_placement(why: Refusal, redundancy: Redundancy, pool: &Pool, now: Tick) -> Failure {
    // Some donors take files only when they are back.
    let (joined, expected) = (pool.donor_count(), pool.expected_donors(0, now));
    match why {
        Refusal::NoDonors if joined == 0 => {
            Failure::new(ErrorKind::NoSpace, code::NO_DONORS, "nobody lends disk to this pool yet")
                .hint("lend some with `potluck lend` on any machine of the pool")
        }
        Refusal::NoDonors => {
            let donors = count(joined as u64, "donor");
            let what = format!("of the pool's {donors} none can be written to now");
            Failure::new(ErrorKind::Retry, code::DONORS_SILENT, what)
                .hint("`potluck status` shows why; wait for one, or lend more with `potluck lend`")
        }
        // Donors that are too few now may be enough when the others are back.
        Refusal::TooFewDonors { have, need } if expected >= need as usize => {
            let mut what = too_few_donors(redundancy, have as usize);
            if need < redundancy.donors() {
                let donors = count(need.into(), "donor");
                what.push_str(&format!("; while some are away, {donors} would do"));
            }
            let hint = match need == redundancy.donors() && have >= redundancy.least_donors() {
                true => {
                    "with --strict=false it is stored now and completed later; or wait for donors to return"
                }
                false => {
                    "wait for donors to return, lend more with `potluck lend`, or ask for less redundancy"
                }
            };
            Failure::new(ErrorKind::Retry, code::DONORS_SILENT, what).hint(hint)
        }
        Refusal::TooFewDonors { have, .. } => of_redundancy(redundancy, have as usize),
        Refusal::NoSpace { .. } => {
            let what = why.to_string();
            Failure::new(ErrorKind::NoSpace, code::FULL, what)
                .hint(format!("{}; or ask for less redundancy", room_advice(&pool.status(now))))
        }
    }
}

/// Says how many donors a redundancy needs, and that only `have` are available.
pub fn too_few_donors(redundancy: Redundancy, have: usize) -> String {
    let needs = match redundancy {
        Redundancy::Copies(copies) if copies > 1 => "need",
        _ => "needs",
    };
    let are = if have == 1 { "is" } else { "are" };
    let donors = count(redundancy.donors().into(), "donor");
    format!("{redundancy} {needs} {donors} and {have} {are} available")
}

/// Returns the failure for a policy that needs more donors than the `joined` ones that can take files.
pub fn of_redundancy(redundancy: Redundancy, joined: usize) -> Failure {
    let what = too_few_donors(redundancy, joined);
    Failure::new(ErrorKind::NoSpace, code::TOO_FEW_DONORS, what)
        .hint("ask for less redundancy, or lend more with `potluck lend`")
}

/// Returns the failure for a policy that no pool can keep.
pub fn of_policy(why: &BadPolicy) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_POLICY, why.to_string())
        .hint("change the option named here")
}

/// Returns the failure for a path that the pool cannot hold.
pub fn of_path(why: &BadPath) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string()).hint("choose another name")
}
