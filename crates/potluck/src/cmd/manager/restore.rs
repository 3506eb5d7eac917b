//! `potluck manager restore`: a lost manager comes back; `potluck manager backup`: a copy to keep.

use super::failed;
use crate::args::{ManagerBackup, ManagerRestore};
use crate::cmd::Ending;
use crate::output::{Output, time};
use crate::settings::Settings;
use potluck_core::size::format_size;
use potluck_manager::{Patience, Restore, Restored};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use std::path::PathBuf;

pub async fn restore(
    args: ManagerRestore,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = args.state.unwrap_or_else(|| settings.manager_dir());
    let ask = Restore { kit: args.kit, state: state.clone(), advertise: args.advertise };
    let env = Env::system();
    let restored = if args.from.as_os_str() == "pool" {
        let patience = Patience { listen: args.listen, quiet: args.wait, donors: args.donors };
        potluck_manager::restore_pool(&ask, &patience, env, |said| output.note(said)).await
    } else {
        env.offload.run(move || potluck_manager::restore_file(&ask, &args.from)).await
    };
    let restored = restored.map_err(failed)?;
    output.result(&restored, text);
    output.note(&format!(
        "next: potluck manager --state {} (with the options it had), then look with `potluck status` and `potluck fsck`, then `potluck gc resume`",
        state.display()
    ));
    Ok(Ending::Done)
}

fn text(restored: &Restored) -> String {
    let from = match (restored.checkpoint, restored.taken_ms) {
        (Some(number), Some(taken)) => format!("checkpoint {number} of {} UTC", time(taken)),
        _ => "a copy of the catalog".to_owned(),
    };
    format!(
        "pool {} restored from {from}: {} files, {} in {} spaces, {} donors\nits manager belongs at {}; what was written after the checkpoint is not in it, and nothing is reclaimed until `potluck gc resume`\n",
        restored.pool,
        restored.files,
        format_size(restored.bytes),
        restored.spaces,
        restored.donors,
        restored.address,
    )
}

pub async fn backup(
    args: ManagerBackup,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = args.state.unwrap_or_else(|| settings.manager_dir());
    let file = args.file.clone();
    let copied = Env::system().offload.run(move || potluck_manager::backup(&state, &file)).await;
    copied.map_err(failed)?;
    let done: PathBuf = args.file;
    output.result(&serde_json::json!({ "file": done }), |_| {
        format!("the catalog is copied to {}; it holds the keys of sealed spaces\n", done.display())
    });
    Ok(Ending::Done)
}
