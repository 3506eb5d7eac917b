//! The catalog's refusals as they reach a person, with what to do next.

use crate::error::Error;
use potluck_pool::NoSession;
use potluck_wire::error::{ErrorKind, Failure, code};

impl From<Error> for Failure {
    fn from(why: Error) -> Self {
        use ErrorKind as K;
        let text = why.to_string();
        let failure = |kind, code, hint: &str| Failure::new(kind, code, text).hint(hint);
        match why {
            Error::NoSpaceNamed(_) => failure(
                K::NotFound,
                code::NO_SPACE_NAMED,
                "`potluck space ls` lists the spaces that you may see; who manages another lets you in with \
                 `potluck space grant`",
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
            Error::NotADirectory(_) => failure(
                K::Conflict,
                code::WRONG_KIND,
                "choose a path whose parents are directories",
            ),
            Error::IsADirectory(_) => failure(
                K::Conflict,
                code::WRONG_KIND,
                "name a file in it, or ask for the whole tree",
            ),
            Error::IsAFile(_) => failure(
                K::Conflict,
                code::WRONG_KIND,
                "choose another name for the link, or remove the file first",
            ),
            Error::IsALink { .. } => failure(
                K::Conflict,
                code::WRONG_KIND,
                "links are not followed in the pool: name what it leads to, or remove the link first; `potluck cp -r` \
                 copies the link itself",
            ),
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
            Error::OtherKey { .. } => failure(
                K::Usage,
                code::BAD_REQUEST,
                "read it and write it again, as `potluck cp` does",
            ),
            Error::IntoItself { .. } => {
                failure(K::Usage, code::OVERLAP, "choose a target outside of it")
            }
            Error::TooLong { .. } => {
                failure(K::Usage, code::BAD_PATH, "choose a target with a shorter path")
            }
            Error::NoCheckpoint(_) => failure(
                K::NotFound,
                code::NO_CHECKPOINT,
                "`potluck ckpt ls` lists those that are open; begin another with `potluck ckpt begin`",
            ),
            Error::CheckpointCommitted { .. } => failure(
                K::Conflict,
                code::CHECKPOINT_COMMITTED,
                "its files are visible; remove what it became with `potluck rm -r`",
            ),
            Error::TooManyCheckpoints(_) => failure(
                K::NoSpace,
                code::TOO_MANY_CHECKPOINTS,
                "commit or abort some: `potluck ckpt ls` lists them",
            ),
            Error::StagingPlace(_) => failure(
                K::Usage,
                code::BAD_PATH,
                "name the directory that the checkpoint is for; `potluck ckpt commit` and `abort` move and remove what is staged",
            ),
            Error::HasCheckpoint(_) => failure(
                K::Conflict,
                code::NOT_EMPTY,
                "commit or abort it, which `potluck ckpt ls` lists; `potluck rm -r` of the directory loses what is staged there",
            ),
            Error::TooManyMerged { .. } => failure(
                K::Usage,
                code::BAD_REQUEST,
                "copy the tree to a name that is free, which may have any number of files, and rename it; or leave out --atomic",
            ),
            Error::KeptPlace(_) => failure(
                K::Usage,
                code::READ_ONLY,
                "copy what you need from there; `potluck revert` and `undelete` bring old versions back, `potluck snapshot rm` removes a snapshot",
            ),
            Error::TooLongToKeep(_) => failure(
                K::Usage,
                code::BAD_PATH,
                "remove it with `potluck rm --forever`, or rename a directory above it first",
            ),
            Error::NotKept { .. } => failure(
                K::NotFound,
                code::NOT_KEPT,
                "`potluck versions` lists what is kept of a file, `potluck trash ls` what was removed below a directory; \
                 `potluck policy show` says for how long",
            ),
            Error::NoSnapshot(_) => failure(
                K::NotFound,
                code::NO_ENTRY,
                "`potluck snapshot ls` lists the snapshots of a directory",
            ),
            Error::BadSnapshotName(_) => {
                failure(K::Usage, code::BAD_PATH, "choose a name that a directory could have")
            }
            Error::TooManySnapshots { .. } => {
                failure(K::NoSpace, code::OVER_QUOTA, "remove some with `potluck snapshot rm`")
            }
            Error::TooManyPolicies { .. } => failure(
                K::NoSpace,
                code::OVER_QUOTA,
                "set it for a directory above those that are to have it, or for the space",
            ),
            Error::HasSnapshots(_) => failure(
                K::Conflict,
                code::NOT_EMPTY,
                "remove them with `potluck snapshot rm`; with -r they go with the directory",
            ),
            Error::TooManySteps { .. } => failure(
                K::Usage,
                code::BAD_REQUEST,
                "remove some of them, or put the steps of each run into a directory of their own",
            ),
            Error::SpaceAsSeries(_) => {
                failure(K::Usage, code::BAD_POLICY, "set it for the directory that holds the steps")
            }
            Error::RemovedAbove { removed, .. } => {
                let hint = format!("bring that back first: `potluck undelete {removed}`");
                failure(K::NotFound, code::NOT_KEPT, &hint)
            }
            Error::BadCursor => failure(K::Usage, code::BAD_REQUEST, "begin the listing anew"),
            Error::NoSession => NoSession.into(),
            // Chunks that were not sent because the pool held them may have been at donors that
            // were given up since.
            Error::HoldersAway { .. }
            | Error::NotAcknowledged { .. }
            | Error::TooFewCopies { .. }
            | Error::NotApart { .. } => failure(
                K::Retry,
                code::NOT_ACKNOWLEDGED,
                "run the same command again: what is there is not sent again",
            ),
            Error::NotStrict { .. } => failure(
                K::Retry,
                code::DONORS_SILENT,
                "with --strict=false it is stored now and completed later; or wait for donors to return",
            ),
            Error::PartsUnjudged => {
                failure(K::Retry, code::CATALOG, "the manager is still at it: try again")
            }
            // The client that asked for the copy reads and writes the file instead, and its chunks are not sent again.
            Error::TooManyChunks { .. } => {
                failure(K::Other, code::NOT_ACKNOWLEDGED, "read it and write it again")
            }
            Error::PartsDiffer(_) => failure(
                K::Usage,
                code::BAD_REQUEST,
                "write the file again; if it happens again, report a bug of the client",
            ),
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
            Error::NoGroup(_) => {
                failure(K::NotFound, code::NO_ENTRY, "`potluck group ls` lists the groups")
            }
            Error::BadDonorName(_) => {
                failure(K::Usage, code::BAD_REQUEST, "choose another by `--name`")
            }
            Error::GroupExists(_) | Error::NameTaken { .. } => {
                failure(K::Conflict, code::EXISTS, "choose another name")
            }
            Error::TooManySpaces(_) => failure(
                K::NoSpace,
                code::TOO_MANY_SPACES,
                "use directories in a space that is there, remove one, or ask an admin to make it",
            ),
            Error::TooManyKeys { .. } => {
                failure(K::NoSpace, code::TOO_MANY_KEYS, "remove one with `potluck key rm`")
            }
            Error::OverQuota { .. } => failure(
                K::NoSpace,
                code::OVER_QUOTA,
                "`potluck quota ls` shows what is used; remove files for good (`potluck rm --forever`), or ask an admin for more",
            ),
            Error::LessSafe(_) => failure(
                K::Auth,
                code::NO_RIGHT,
                "leave out what the command sets differently: `potluck policy show` shows what holds; a program that \
                 writes from above a safer directory asks for as much itself, such as `--ack disk`",
            ),
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
            Error::NotSealed(_) => failure(
                K::Usage,
                code::BAD_REQUEST,
                "`potluck space ls` shows which spaces are sealed; copy the files to a sealed one",
            ),
            Error::KeyChanged => {
                failure(K::Retry, code::OTHER_KEY, "write again: it is sealed with the new key")
            }
            Error::NotSealedAgain(_) => failure(
                K::Conflict,
                code::OTHER_KEY,
                "nothing is lost: what is there is as it was, and is looked at again",
            ),
            Error::OpenElsewhere(_) => failure(
                K::Retry,
                code::OTHER_KEY,
                "run `potluck space rekey` again when it is closed",
            ),
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
            Error::Contended => failure(
                K::Retry,
                code::CATALOG,
                "end what reads or writes the manager's catalog beside the manager, and try again",
            ),
            Error::Busy => {
                failure(K::Retry, code::CATALOG, "try again in a moment, with fewer calls at once")
            }
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
}
