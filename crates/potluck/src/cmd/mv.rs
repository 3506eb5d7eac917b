//! `potluck mv`: move or rename inside a space.

use super::Ending;
use super::cp::kind_of;
use crate::args::Mv;
use crate::output::Output;
use potluck_client::pool::Client;
use potluck_wire::control::{EntryKind, Move};
use potluck_wire::error::{ErrorKind, Failure, code};

pub async fn run(args: Mv, client: &Client, output: &Output) -> Result<Ending, Failure> {
    let Some(name) = args.from.file_name() else {
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, "a space cannot be moved")
            .hint("move what is in it"));
    };
    let to = match kind_of(client, &args.to).await? {
        Some(EntryKind::Dir) => args
            .to
            .join(name)
            .map_err(|why| Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string()))?,
        _ => args.to,
    };
    let moved = Move { from: args.from.clone(), to: to.clone(), no_replace: args.no_replace };
    client.call(&moved).await?;
    output.result(&serde_json::json!({ "from": args.from, "to": to }), |_| String::new());
    Ok(Ending::Done)
}
