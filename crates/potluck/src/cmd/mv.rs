//! `potluck mv`: moves or renames a file or directory inside a space.

use super::Ending;
use super::cp::{CopyPlace, Landing, PlacedAt, target};
use crate::args::MvArgs;
use crate::confirm::{can_ask, confirm};
use crate::output::Output;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};

pub async fn run(args: MvArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let Some(name) = args.from.file_name() else {
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, "a space cannot be moved")
            .hint("move what is in it"));
    };
    let place = CopyPlace::target(&args.to)?;
    let PlacedAt::Pool(to) = &place.at else {
        let what = "a file is moved inside the pool";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
            .hint("write pot://SPACE/PATH; to take it out of the pool, copy it, then remove it"));
    };
    let is_dir = client.kind(to).await? == Some(EntryKind::Dir);
    let landing = Landing { into: place.into, is_dir, several: false };
    let source = client.stat_unjudged(&args.from).await?.entry;
    let to = target(to, landing.takes_in(source.kind == EntryKind::Dir).then_some(name))?;
    rename(&args, source.kind, &to, client).await?;
    output.result(&serde_json::json!({ "from": args.from, "to": to }), |_| String::new());
    Ok(Ending::Done)
}

/// Moves, and replaces a file only with `-y` or after the user agreed. A directory replaces only an empty one, with which
/// nothing is lost.
async fn rename(
    args: &MvArgs,
    kind: EntryKind,
    to: &PoolPath,
    client: &Pool,
) -> Result<(), Failure> {
    let no_replace = args.no_replace || (kind != EntryKind::Dir && !args.yes);
    let refused = match client.rename(&args.from, to, no_replace).await {
        Err(refused) if refused.code == code::EXISTS && !args.no_replace => refused,
        result => return result,
    };
    let advice = "add -y to replace it";
    if !can_ask() {
        return Err(refused.hint(advice));
    }
    confirm(&format!("replace {to}, which is lost then?"), advice).await?;
    client.rename(&args.from, to, false).await
}
