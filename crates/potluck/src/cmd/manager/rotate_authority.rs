//! `potluck manager rotate-authority`: replaces the pool's authority and its recovery key while the pool runs.

use crate::args::RotateAuthorityArgs;
use crate::cmd::Ending;
use crate::cmd::waiting::ASK_AGAIN;
use crate::command_settings::CommandSettings;
use crate::confirm::confirm;
use crate::output::{Output, count, time};
use potluck_client::Pool;
use potluck_wire::control::{AuthorityReplace, AuthorityState, AuthorityStep, MemberAbout};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::fingerprint;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which it is waited at least until members are told: the metadata log is written anew before.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
/// The most members that are named.
const NAMED: usize = 10;

pub async fn run(
    args: RotateAuthorityArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let client = settings.client()?;
    let identity = settings.identity()?;
    let call = async |step| client.call(&AuthorityReplace { step }).await;
    let found = call(AuthorityStep::Look).await?;
    if args.caution.dry_run {
        output.result(&found, told);
        return Ok(Ending::Done);
    }
    if args.finish {
        if !args.caution.yes && found.earlier.is_some() && !found.behind.is_empty() {
            let question = format!(
                "have {} never follow, who then need a new invitation?",
                named(&found.behind)
            );
            confirm(&question, "add -y to do it without asking, or -n to only look").await?;
        }
        let ended = call(AuthorityStep::End).await?;
        output.result(&ended, told);
        return Ok(Ending::Done);
    }
    let pool = &identity.about.pool;
    if !args.caution.yes && found.earlier.is_none() {
        let question = format!(
            "replace the authority and the recovery key of the pool {pool}? Every copy of its recovery kit is then \
             worthless, and every token that nobody has used"
        );
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    let began = call(AuthorityStep::Begin(fingerprint(&identity.ca))).await?;
    output.note(&format!(
        "the pool {pool} has a new authority and a new recovery key. Copy the recovery kit {} of the manager's machine \
         to a safe place now; every earlier copy is worthless from here on",
        began.kit
    ));
    let state = follow(&client, began, args.wait, output).await?;
    output.result(&state, told);
    if state.earlier.is_none() {
        return Ok(Ending::Done);
    }
    let what = match state.is_told {
        true => format!("{} do not follow the new authority yet", named(&state.behind)),
        false => {
            "members are not told yet, for the metadata log is not sealed under the new key".into()
        }
    };
    let failure = Failure::new(ErrorKind::Partial, code::STUCK, what).hint(
        "they follow by themselves when they are next here, and then the earlier authority ends; `potluck manager \
         rotate-authority --finish` ends it now, and whoever is left behind needs a new invitation",
    );
    output.complain(&failure);
    Ok(Ending::Partial)
}

/// Waits until the change has ended, or nobody followed for the time `wait`.
async fn follow(
    client: &Pool,
    mut state: AuthorityState,
    wait: Duration,
    output: &Output,
) -> Result<AuthorityState, Failure> {
    let look = AuthorityReplace { step: AuthorityStep::Look };
    let mut moved = Instant::now();
    let limit = |state: &AuthorityState| if state.is_told { wait } else { wait.max(TOLD_WITHIN) };
    while state.earlier.is_some() && moved.elapsed() < limit(&state) {
        tokio::time::sleep(ASK_AGAIN).await;
        let now = client.under_way().call(&look).await?;
        if now != state {
            moved = Instant::now();
            if now.is_told {
                let following = now.members - now.behind.len() as u64;
                output.note(&format!("{following} of {} follow", count(now.members, "member")));
            }
        }
        state = now;
    }
    Ok(state)
}

fn told(state: &AuthorityState) -> String {
    let AuthorityState { authority, earlier, members, behind, kit, .. } = state;
    let mut text = format!("the pool's authority is {}", authority.short());
    text += &match earlier {
        Some(earlier) => {
            format!("; {}, the one before it, is trusted until all members follow", earlier.short())
        }
        None => ", and no other is trusted".into(),
    };
    let following = members - behind.len() as u64;
    text += &format!("\n{following} of {} follow it", count(*members, "member"));
    for member in behind {
        let MemberAbout { member, name, role, seen_wall_ms, .. } = member;
        let seen = seen_wall_ms
            .map_or_else(|| "never seen".into(), |at| format!("last seen {}", time(at)));
        text += &match earlier {
            Some(_) => format!("\nnot yet: {role} {name} ({member}), {seen}"),
            None => format!("\nleft behind: {role} {name} ({member}), {seen}; invite it again"),
        };
    }
    text + &format!("\nits recovery kit is {kit} on the manager's machine\n")
}

fn named(members: &[MemberAbout]) -> String {
    let mut names: Vec<_> =
        members.iter().take(NAMED).map(|it| format!("{} ({})", it.name, it.member)).collect();
    if members.len() > NAMED {
        names.push(format!("{} more", members.len() - NAMED));
    }
    names.join(", ")
}
