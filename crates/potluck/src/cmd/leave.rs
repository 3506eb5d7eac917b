//! `potluck leave`: a member ends its own membership, and its files on this machine are removed.
//!
//! A machine's donor leaves together with the donors of further directories that its daemon lends. First all
//! give back what they hold. The memberships that are to end are recorded before the first one ends, and that
//! they have ended is recorded before anything is removed here. So the same command, run again, goes on where
//! it was interrupted.

mod of_directory;
mod record;
mod removal;

use super::drain::{self, GiveBackPlace};
use super::{Ending, lend};
use crate::args::{self, Caution, DrainOptions};
use crate::command_settings::CommandSettings;
use crate::confirm::confirm;
use crate::output::{Output, can_ask, count};
use crate::systemd::UnitRole as Service;
pub use of_directory::of_directory;
use potluck_client::Pool;
use potluck_config::own_pools;
use potluck_core::ids::DonorId;
use potluck_core::size::format_size;
use potluck_wire::control::{self, Departing, GivingBack, Going, MayGo, MemberList};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity};
use potluck_wire::token::Role;
use record::{LEAVING, Membership};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for an answer of a manager that the user says is gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The effects that leaving would have.
#[derive(Debug, Serialize)]
struct Plan<'a> {
    #[serde(flatten)]
    about: &'a About,
    left: bool,
    memberships: &'a [Membership],
    /// The chunks that its donors hold together. The files that it lists as lost are lost only with `--now`.
    holds: Option<&'a GivingBack>,
    would_remove: Vec<&'a Path>,
    /// The service that would be stopped and removed.
    service: Option<&'static str>,
    /// The number of chunks here of which no manager can be asked whether files need them, because their donor was
    /// removed or the pool is gone.
    unasked_chunks: u64,
    /// The steps to be done by hand if manager and donor are one process.
    beside_manager: Option<&'static str>,
    #[serde(skip)]
    now: bool,
    /// The reason why nothing of this would be done, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Failure>,
}

/// A membership that has not ended.
struct Open<'a> {
    membership: &'a Membership,
    client: Pool,
    /// The chunks that its donor holds; `None` if it is no donor, or no member any more.
    held: Option<GivingBack>,
    /// The name that people call its donor by.
    name: String,
}

pub async fn run(
    args: args::LeaveArgs,
    settings: &CommandSettings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let dir = match &args.state {
        Some(dir) => lend::absolute(dir)?,
        None => only_identity(settings)?,
    };
    let mut memberships = record::find(&dir)?;
    if args.pool_is_gone {
        for membership in memberships.iter().filter(|membership| !membership.ended) {
            refuse_if_answered(membership).await?;
        }
        memberships.iter_mut().for_each(|membership| membership.ended = true);
    }
    let mut open = Vec::new();
    for membership in memberships.iter().filter(|membership| !membership.ended) {
        open.push(Open::look(membership).await?);
    }
    for one in &open {
        refuse_last_admin(one).await?;
    }
    let together = together(&open).await?;
    let removed = open.iter().filter(|one| one.was_removed()).map(|one| one.membership);
    let of_gone = memberships.iter().filter(|_| args.pool_is_gone);
    let unasked_chunks = removed.chain(of_gone).map(|one| stored(&one.lent)).sum();
    let moved = together.as_ref().filter(|_| !args.now);
    let refused = moved.and_then(|held| refusal(held, &dir));
    let plan = Plan {
        unasked_chunks,
        refused: refused.clone(),
        ..Plan::new(&memberships, together.as_ref(), args.now, settings)?
    };
    if args.caution.dry_run {
        output.result(&plan, Plan::text);
        return Ok(if refused.is_some() { Ending::Partial } else { Ending::Done });
    }
    if let Some(refused) = refused {
        return Err(refused);
    }
    // Where nobody can be asked nothing is begun, so that nothing is announced either.
    if args.caution.yes || can_ask() {
        output.note(&plan.text());
    }
    if !args.caution.yes {
        let question = format!("leave pool {}?", plan.about.pool);
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    let mut may_lose = together.as_ref().map_or(0, |held| held.lost_files);
    if args.now {
        if may_lose > 0 && !args.caution.yes {
            confirm_loss(may_lose).await?;
        }
    } else if let Some(held) = &together
        && give_back(&open, held, output, shown).await? == Ending::Partial
    {
        return Ok(Ending::Partial);
    }
    if open.len() > 1 {
        record::write(&memberships)?; // so that the others are known after the first has ended
    }
    for open in &open {
        open.end(&args, &mut may_lose, output).await?;
    }
    memberships.iter_mut().for_each(|membership| membership.ended = true);
    record::write(&memberships)?;
    removal::clean_up(&memberships, settings, output).await
}

/// Returns the directory of the only identity here: that of this machine's donor, or that of its user.
///
/// Errors: there is none, or there are several.
fn only_identity(settings: &CommandSettings) -> Result<PathBuf, Failure> {
    let donor = settings.donor_dir();
    let pools = fs::read_dir(settings.pools_dir()).into_iter().flatten().flatten();
    let begun = pools.map(|entry| entry.path()).chain([donor.clone()]);
    // A departure that was begun goes on first, even if a part of its directory is gone.
    if let Some(begun) = begun.into_iter().find(|dir| dir.join(LEAVING).exists()) {
        return Ok(begun);
    }
    let user = settings.joined_dir();
    let users = match &user {
        Ok(one) => vec![one.clone()],
        Err(_) => own_pools::joined(&settings.pools_dir()).into_iter().map(|own| own.dir).collect(),
    };
    let donor = Identity::exists(&donor).then_some(donor);
    let all: Vec<PathBuf> = donor.into_iter().chain(users).collect();
    match all.as_slice() {
        [one] => Ok(one.clone()),
        [] => user,
        several => {
            let what = format!("this machine has {} identities", several.len());
            let choices: Vec<String> = several.iter().map(|dir| choice(dir)).collect();
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint(format!("say which is to leave: {}", choices.join(", or "))))
        }
    }
}

/// Returns the option that names an identity, with the member that it belongs to.
fn choice(dir: &Path) -> String {
    let option = format!("--state {}", dir.display());
    match Identity::load(dir) {
        Ok(Identity { about, .. }) => format!("{option} (the {})", record::who(&about)),
        Err(_) => option,
    }
}

/// Counts the chunks in lent directories. A directory that cannot be read counts as 0; its removal will fail with the
/// reason.
fn stored(dirs: &[PathBuf]) -> u64 {
    let count = |dir: &PathBuf| {
        let mut chunks = 0;
        potluck_donor::each_stored(dir, |_| chunks += 1).ok().map(|()| chunks)
    };
    dirs.iter().filter_map(count).sum()
}

/// Refuses to take a pool for gone if its manager answers the donor as a member, because it may need what the donor
/// holds.
async fn refuse_if_answered(membership: &Membership) -> Result<(), Failure> {
    let looked = tokio::time::timeout(ANSWER_TIMEOUT, Open::look(membership)).await;
    if !matches!(looked, Ok(Ok(Open { held: Some(_), .. }))) {
        return Ok(());
    }
    let what = format!("pool {} is not gone: its manager answers", membership.about.pool);
    Err(Failure::new(ErrorKind::Conflict, code::NOT_ALLOWED, what)
        .hint("leave it without --pool-is-gone, so that what is lent here is moved first"))
}

/// Refuses the last admin, before the user is asked anything.
async fn refuse_last_admin(open: &Open<'_>) -> Result<(), Failure> {
    let About { role, member, .. } = open.membership.about;
    if role != Role::Admin {
        return Ok(());
    }
    let others = open.client.call(&MemberList {}).await?.members;
    let mut others = others.iter().filter(|it| it.role == Role::Admin && !it.revoked);
    if others.any(|other| other.member != member) {
        return Ok(());
    }
    let what = format!("{} is the last admin", open.membership.who());
    Err(Failure::new(ErrorKind::Conflict, code::NOT_ALLOWED, what)
        .hint("invite another admin first"))
}

/// Asks what it would mean that all donors among these leave together; `None` if none of them is a donor that is still
/// a member.
async fn together(all: &[Open<'_>]) -> Result<Option<GivingBack>, Failure> {
    let donors: Vec<&Open> = all.iter().filter(|one| one.held.is_some()).collect();
    match donors.as_slice() {
        [] => Ok(None),
        [one] => Ok(one.held.clone()),
        several => {
            let ids = several.iter().map(|one| DonorId(one.membership.about.member.0)).collect();
            let all = Departing { donors: ids, over: None };
            several[0].client.call(&all).await.map(Some)
        }
    }
}

async fn confirm_loss(files: u64) -> Result<(), Failure> {
    let question = format!("lose {} for ever?", count(files, "file"));
    confirm(&question, "without --now all is moved to other donors first").await
}

/// Returns the failure if donors could never give back all that they hold. `dir` is the state directory of the
/// membership that was to end.
fn refusal(held: &GivingBack, dir: &Path) -> Option<Failure> {
    let MayGo { verdict, why, advice } = &held.may_go;
    if *verdict != Going::Stuck || !held.is_needed() {
        return None;
    }
    // With this option only the donor of one directory leaves, and not the whole machine.
    let which = match lend::daemon_of(dir) {
        Some(_) => format!(" --state {}", dir.display()),
        None => String::new(),
    };
    let what = format!("what is held here cannot all be moved, and nothing is begun: {why}");
    Some(Failure::new(ErrorKind::Partial, code::STUCK, what).hint(format!(
        "{advice}; `potluck leave --now -n{which}` says what it means to leave without that"
    )))
}

/// Moves what the leaving donors hold to other donors, if files need it.
async fn give_back(
    all: &[Open<'_>],
    held: &GivingBack,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    if !held.is_needed() {
        return Ok(Ending::Done);
    }
    // All give-backs begin before the command waits for one, so that nothing moves from one of these donors
    // to another.
    let donors = || all.iter().filter(|one| one.held.as_ref().is_some_and(|held| held.held > 0));
    for one in donors() {
        one.client.call(&drain::order(&one.place(), false)).await?;
    }
    for one in donors() {
        let caution = Caution { dry_run: false, yes: true };
        let options = DrainOptions { now: false, no_wait: false, caution };
        let output = output.of_step();
        let outcome = drain::empty(&one.place(), options, &one.client, &output, shown).await?;
        if outcome.tell(&output) == Ending::Partial {
            return Ok(Ending::Partial);
        }
    }
    Ok(Ending::Done)
}

impl<'a> Open<'a> {
    async fn look(membership: &'a Membership) -> Result<Self, Failure> {
        let dir = &membership.dir;
        let client =
            Pool::new(Env::system(), own_pools::guided(&own_pools::load_identity(dir)?, dir)?);
        let lent = membership.lent.first();
        let name = lent.map_or("this machine".into(), |dir| dir.display().to_string());
        let mut open = Self { membership, client, held: None, name };
        open.held = open.holds().await?;
        Ok(open)
    }

    /// Asks which chunks its donor holds now.
    async fn holds(&self) -> Result<Option<GivingBack>, Failure> {
        if self.membership.about.role != Role::Donor {
            return Ok(None);
        }
        match self.client.call(&drain::look(&self.place())).await {
            Ok(held) => Ok(Some(held)),
            Err(failure) if failure.code == code::REVOKED => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns whether it is a donor that an admin removed.
    fn was_removed(&self) -> bool {
        self.membership.about.role == Role::Donor && self.held.is_none()
    }

    fn place(&self) -> GiveBackPlace<'_> {
        let cancel = format!("potluck drain --cancel --state {}", self.membership.dir.display());
        GiveBackPlace { donor: None, name: &self.name, cancel }
    }

    /// Ends the membership. The user agreed to lose `may_lose` files by that, and is asked again if it would be more.
    async fn end(
        &self,
        args: &args::LeaveArgs,
        may_lose: &mut u64,
        output: &Output,
    ) -> Result<(), Failure> {
        loop {
            let loss = if args.now { self.holds().await? } else { None };
            let loses = loss.as_ref().map_or(0, |loss| loss.lost_files);
            if let Some(loss) = loss.as_ref().filter(|_| loses > *may_lose && !args.caution.yes) {
                output.note(&drain::at_once(loss));
                confirm_loss(loses).await?;
                *may_lose = loses;
            }
            let agreed = loss.filter(|_| loses > 0).and_then(|loss| loss.listing);
            let leave = control::Leave { now: args.now, agreed };
            // A write that ended a moment ago may count as under way still.
            match self.client.call_retrying(&leave).await {
                Err(failure)
                    if failure.code == code::NOT_AGREED && args.now && !args.caution.yes =>
                {
                    output.note(&failure.message);
                }
                // Revoked means that the membership ended earlier, which could not be recorded.
                Err(failure) if failure.code != code::REVOKED => return Err(failure),
                Ok(_) | Err(_) => {
                    *may_lose = may_lose.saturating_sub(loses);
                    return Ok(());
                }
            }
        }
    }
}

impl<'a> Plan<'a> {
    fn new(
        memberships: &'a [Membership],
        holds: Option<&'a GivingBack>,
        now: bool,
        settings: &CommandSettings,
    ) -> Result<Self, Failure> {
        let own = memberships.last().expect("at least the one that was asked for");
        let service = removal::service_of(&own.dir, Service::Lend, settings);
        Ok(Self {
            about: &own.about,
            left: false,
            memberships,
            holds,
            would_remove: memberships.iter().flat_map(Membership::here).collect(),
            service: service.map(|_| Service::Lend.unit()),
            beside_manager: removal::beside_manager(&own.dir, settings)?,
            unasked_chunks: 0,
            now,
            refused: None,
        })
    }

    fn text(&self) -> String {
        if let Some(Failure { message, hint, .. }) = &self.refused {
            return format!("this would be refused: {message}\n{hint}");
        }
        let ends = |it: &Membership| {
            let ends = if it.ended { "has ended" } else { "ends" };
            format!("the membership of {} {ends} for ever", it.who())
        };
        let mut lines: Vec<_> = self.memberships.iter().map(ends).collect();
        lines.extend(self.holds.map(|held| becomes(held, self.now)));
        lines.extend((self.unasked_chunks > 0).then(|| {
            format!(
                "! {} here, and nobody can be asked whether files need them, for the membership was ended \
                 by an admin, or the pool is taken for gone. To bring them back instead: `potluck join - --state NEW`, then `potluck \
                 lend DIR --adopt-store --state NEW`",
                match self.unasked_chunks {
                    1 => "1 chunk is".to_owned(),
                    more => format!("{} are", count(more, "chunk")),
                }
            )
        }));
        lines
            .extend(self.would_remove.iter().map(|dir| format!("removed here: {}", dir.display())));
        lines.extend(self.service.map(|unit| format!("stopped and removed here: {unit}")));
        lines.extend(self.beside_manager.map(|todo| {
            format!(
                "! manager and donor are one process here (`potluck up`), which is not stopped: once \
                 the membership has ended, {todo}, and run `potluck leave` again for what is left here"
            )
        }));
        lines.join("\n")
    }
}

/// Says what happens to the chunks of donors that leave.
fn becomes(held: &GivingBack, now: bool) -> String {
    let becomes = if now { drain::at_once(held) } else { drain::moving(held) };
    format!("what is lent here holds {}; {becomes}", format_size(held.held))
}
