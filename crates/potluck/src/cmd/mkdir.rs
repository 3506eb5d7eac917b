//! `potluck mkdir`: make a directory.

use super::Ending;
use crate::args::Mkdir;
use crate::output::Output;
use potluck_client::pool::Client;
use potluck_wire::control::MakeDir;
use potluck_wire::error::Failure;

pub async fn run(args: Mkdir, client: &Client, output: &Output) -> Result<Ending, Failure> {
    client.call(&MakeDir { path: args.path.clone(), parents: args.parents }).await?;
    output.result(&serde_json::json!({ "path": args.path }), |_| String::new());
    Ok(Ending::Done)
}
