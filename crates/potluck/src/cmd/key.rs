//! `potluck key`: makes, lists and ends the access keys by which gateways act on behalf of a user.

use super::Ending;
use crate::args::{KeyArgs, KeyCreateArgs};
use crate::output::{Output, duration, in_zone, name, table, time};
use potluck_client::Pool;
use potluck_core::rights::{Right, Rights};
use potluck_wire::control::{
    AccessKeyAbout, AccessKeyCreate, AccessKeyList, AccessKeyRemove, AccessKeys,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::write_private;

pub async fn run(args: KeyArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        KeyArgs::Create(args) => create(args, client, output).await?,
        KeyArgs::Ls => output.result(&client.call(&AccessKeyList {}).await?, text),
        KeyArgs::Rm(args) => {
            for id in &args.keys {
                client.call(&AccessKeyRemove { id: id.clone() }).await?;
            }
            output.result(&serde_json::json!({ "removed": args.keys }), |_| String::new());
        }
    }
    Ok(Ending::Done)
}

async fn create(args: KeyCreateArgs, client: &Pool, output: &Output) -> Result<(), Failure> {
    let KeyCreateArgs { spaces, write, ttl, unseal, label, secret_file, .. } = args;
    let rights: &[Right] = if write { &[Right::Read, Right::Write] } else { &[Right::Read] };
    let rights: Rights = rights.iter().copied().collect();
    let ttl_seconds = ttl.as_secs();
    let call = AccessKeyCreate { spaces, rights, ttl_seconds, unseals: unseal, label };
    let made = client.call(&call).await?;
    let Some(file) = secret_file else {
        output.result(&made, |made| {
            format!(
                "identifier {}\nsecret     {}\nthe secret is shown this once; the key ends in {}, or with: potluck key rm {}",
                made.id,
                made.secret,
                duration(ttl_seconds),
                made.id
            )
        });
        return Ok(());
    };
    if let Err(why) = write_private(&file, format!("{}\n", made.secret).as_bytes()) {
        // Nobody has the secret, so the key is of no use.
        client.call(&AccessKeyRemove { id: made.id }).await?;
        let what = format!("cannot write {}: {why}", file.display());
        return Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("name another file; no key was made"));
    }
    let shown = serde_json::json!({ "id": made.id, "secret_file": file });
    output
        .result(&shown, |_| format!("identifier {}; its secret is in {}", made.id, file.display()));
    Ok(())
}

fn text(AccessKeys { keys }: &AccessKeys) -> String {
    let row = |key: &AccessKeyAbout| {
        let sealed = if key.unseals { ", unseals" } else { "" };
        vec![
            key.id.clone(),
            format!("{} ({})", name(&key.name), key.member),
            key.spaces.join(" "),
            format!("{}{sealed}", key.rights),
            time(key.made_wall_ms),
            duration(key.left_seconds),
            name(&key.label).into_owned(),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    table(&["identifier", "of", "spaces", "may", &in_zone("made"), "ends in", "label"], &[], &rows)
}
