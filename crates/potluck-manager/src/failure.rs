//! Refusals as they reach a person: the one place where the manager's errors become
//! [`Failure`]s.

use crate::catalog::Error;
use potluck_core::path::BadPath;
use potluck_core::placement::Refusal;
use potluck_core::policy::{BadPolicy, Redundancy};
use potluck_core::size::count;
use potluck_pool::{NoSession, OutOfOrder};
use potluck_wire::error::{ErrorKind, Failure, code};

/// What the catalog says.
pub fn of_catalog(why: Error) -> Failure {
    use ErrorKind as K;
    let text = why.to_string();
    let failure = |kind, code, hint: &str| Failure::new(kind, code, text).hint(hint);
    match why {
        Error::NoSpaceNamed(_) => failure(
            K::NotFound,
            code::NO_SPACE_NAMED,
            "`potluck space ls` lists the spaces; an admin makes one with `potluck space create`",
        ),
        Error::SpaceExists(_) => failure(K::Conflict, code::EXISTS, "choose another name"),
        Error::SpaceNotEmpty { .. } => failure(
            K::Conflict,
            code::NOT_EMPTY,
            "remove its files first, or lose them with `potluck space rm -r`",
        ),
        Error::NoEntry(_) => {
            failure(K::NotFound, code::NO_ENTRY, "`potluck ls` shows what is there")
        }
        Error::Exists(_) => {
            failure(K::Conflict, code::EXISTS, "choose another name, or replace what is there")
        }
        Error::WrongVersion { .. } => failure(
            K::Conflict,
            code::WRONG_VERSION,
            "somebody wrote it meanwhile: read it again and decide anew",
        ),
        Error::HasContent { .. } => failure(
            K::Conflict,
            code::EMPTY_INPUT,
            "look why its producer wrote nothing; --allow-empty replaces it all the same",
        ),
        Error::NotADirectory(_) => {
            failure(K::Conflict, code::WRONG_KIND, "choose a path whose parents are directories")
        }
        Error::IsADirectory(_) => {
            failure(K::Conflict, code::WRONG_KIND, "name a file in it, or ask for the whole tree")
        }
        Error::NotRecursive(_) => failure(
            K::Usage,
            code::NOT_RECURSIVE,
            "add -r to take it with all that is in it, or name a file in it",
        ),
        Error::NotEmpty(_) => failure(
            K::Conflict,
            code::NOT_EMPTY,
            "choose another target, end it with / to move into it, or remove it first",
        ),
        Error::OutsideSpaces(_) => failure(
            K::Usage,
            code::BAD_PATH,
            "name a path inside a space, pot://SPACE/PATH; spaces themselves are made and removed with `potluck space`",
        ),
        Error::AcrossSpaces { .. } => failure(
            K::Usage,
            code::BAD_PATH,
            "copy it with `potluck cp` and then remove the original",
        ),
        Error::OtherKey { .. } => {
            failure(K::Usage, code::BAD_REQUEST, "read it and write it again, as `potluck cp` does")
        }
        Error::IntoItself { .. } => {
            failure(K::Usage, code::OVERLAP, "choose a target outside of it")
        }
        Error::BadCursor => failure(K::Usage, code::BAD_REQUEST, "begin the listing anew"),
        Error::NoSession => of_session(NoSession),
        Error::NotAcknowledged { .. } | Error::TooFewCopies { .. } | Error::NotApart { .. } => {
            failure(K::Other, code::NOT_ACKNOWLEDGED, "offer the file's chunks and send them again")
        }
        Error::WrongLength { .. } => {
            failure(K::Integrity, code::WRONG_BYTES, "write the file again from its source")
        }
        Error::UnknownToken | Error::UsedToken | Error::ExpiredToken => failure(
            K::Auth,
            code::BAD_TOKEN,
            "ask an admin for a new one: `potluck invite`; each works once, and for a limited time",
        ),
        Error::BadCertificateRequest(_) => {
            failure(K::Usage, code::BAD_REQUEST, "join again with this release of Potluck")
        }
        Error::NoMember(_) => {
            failure(K::NotFound, code::NO_ENTRY, "`potluck members ls` lists the members")
        }
        Error::NoToken(_) => {
            failure(K::NotFound, code::NO_ENTRY, "`potluck invite ls` lists the invitations")
        }
        Error::TokenOfMember { member, .. } => {
            let hint = format!("to end that membership: `potluck members rm {member}`");
            failure(K::Conflict, code::ALREADY_JOINED, &hint)
        }
        Error::LastAdmin(_) => {
            failure(K::Conflict, code::NOT_ALLOWED, "invite another admin first")
        }
        Error::DiskFull => failure(
            K::NoSpace,
            code::CATALOG,
            "free space on the disk that holds the manager's state directory",
        ),
        Error::Disk(_) => failure(
            K::Other,
            code::CATALOG,
            "look at the disk that holds the manager's state directory",
        ),
        Error::Damaged(_) => failure(
            K::Integrity,
            code::CATALOG,
            "stop the manager and bring its catalog back with `potluck manager restore`; donors delete nothing meanwhile",
        ),
        Error::Sql(_) => failure(
            K::Other,
            code::CATALOG,
            "look at the manager's log and at the disk that holds its state directory",
        ),
        Error::Closed => failure(K::Retry, code::NO_MANAGER, "try again when it runs again"),
        Error::Bug(_) => failure(
            K::Other,
            code::CATALOG,
            "this is a bug of the manager: please report it with the manager's log",
        ),
    }
}

impl From<Error> for Failure {
    fn from(why: Error) -> Self {
        of_catalog(why)
    }
}

/// A session that is over.
pub fn of_session(_: NoSession) -> Failure {
    Failure::new(
        ErrorKind::Retry,
        code::NO_SESSION,
        "the write session is over: it was closed, or nothing was heard from it for too long",
    )
    .hint("start the command again; nothing of the interrupted one is visible")
}

/// A page of an inventory that does not follow the last.
pub fn of_inventory(_: OutOfOrder) -> Failure {
    Failure::new(
        ErrorKind::Conflict,
        code::BAD_REQUEST,
        "this page of the inventory does not follow the last one that arrived",
    )
    .hint("begin the inventory anew with page 0, after registering if the manager asks for it")
}

/// A plan for files kept by `redundancy` that cannot be made; `joined` donors are of the pool, live
/// or not.
pub fn of_placement(why: Refusal, redundancy: Redundancy, joined: usize) -> Failure {
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
        // What is short now may be enough when the donors are back.
        Refusal::TooFewDonors { have, need } if joined >= need as usize => {
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
                .hint("remove files, ask for less redundancy, or lend more with `potluck lend`")
        }
    }
}

/// What a redundancy lacks where so many donors are there.
pub fn too_few_donors(redundancy: Redundancy, have: usize) -> String {
    let needs = match redundancy {
        Redundancy::Copies(copies) if copies > 1 => "need",
        _ => "needs",
    };
    let are = if have == 1 { "is" } else { "are" };
    let donors = count(redundancy.donors().into(), "donor");
    format!("{redundancy} {needs} {donors} and {have} {are} available")
}

/// A policy that the pool, with `joined` donors, cannot keep.
pub fn of_redundancy(redundancy: Redundancy, joined: usize) -> Failure {
    let what = too_few_donors(redundancy, joined);
    Failure::new(ErrorKind::NoSpace, code::TOO_FEW_DONORS, what)
        .hint("ask for less redundancy, or lend more with `potluck lend`")
}

/// A policy nobody can keep.
pub fn of_policy(why: &BadPolicy) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_POLICY, why.to_string())
        .hint("change the option named here")
}

/// A name the pool cannot hold.
pub fn of_path(why: &BadPath) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string()).hint("choose another name")
}

/// A request that makes no sense.
pub fn bad_request(why: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, why)
        .hint("bring both sides to releases of Potluck at most one minor version apart")
}
