//! `potluck mv`: move or rename inside a space.

use super::Ending;
use super::cp::{At, Landing, Place, kind_of, target};
use crate::args::Mv;
use crate::confirm::{can_ask, confirm};
use crate::output::Output;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, Move, Stat};
use potluck_wire::error::{ErrorKind, Failure, code};

pub async fn run(args: Mv, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let Some(name) = args.from.file_name() else {
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, "a space cannot be moved")
            .hint("move what is in it"));
    };
    let place = Place::target(&args.to)?;
    let At::Pool(to) = &place.at else {
        let what = "a file is moved inside the pool";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
            .hint("write pot://SPACE/PATH; to take it out of the pool, copy it, then remove it"));
    };
    let is_dir = kind_of(client, to).await? == Some(EntryKind::Dir);
    let landing = Landing { into: place.into, is_dir, several: false };
    let source = client.call(&Stat { path: args.from.clone(), chunks: false }).await?.entry;
    let to = target(to, landing.takes_in(source.kind == EntryKind::Dir).then_some(name))?;
    rename(&args, &to, client).await?;
    output.result(&serde_json::json!({ "from": args.from, "to": to }), |_| String::new());
    Ok(Ending::Done)
}

/// Moves, and replaces a file only if somebody said so.
async fn rename(args: &Mv, to: &PoolPath, client: &Pool) -> Result<(), Failure> {
    let mut moved = Move { from: args.from.clone(), to: to.clone(), no_replace: !args.yes };
    let refused = match client.call(&moved).await {
        Err(refused) if refused.code == code::EXISTS && !args.no_replace => refused,
        result => return result.map(drop),
    };
    let advice = "add -y to replace it";
    if !can_ask() {
        return Err(refused.hint(advice));
    }
    confirm(&format!("replace {to}, which is lost then?"), advice).await?;
    moved.no_replace = false;
    client.call(&moved).await.map(drop)
}
