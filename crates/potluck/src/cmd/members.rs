//! `potluck members`: lists and removes members of the pool.

use super::Ending;
use super::drain::weakened;
use super::nodes::{only_there, removable, would_end};
use super::space::{advise_rekey, rekey_advised};
use crate::args::{self, MembersLsArgs, MembersRmArgs};
use crate::command_settings::CommandSettings;
use crate::confirm::confirm;
use crate::output::{Output, count, duration, in_zone, table, time};
use potluck_client::Pool;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::rights::is_number;
use potluck_wire::control::{
    Departing, GivingBack, Invitation, InvitationList, MayGo, MemberAbout, MemberList, Members,
    RemovalNeeds, Revoke,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use serde::Serialize;

pub async fn run(
    args: args::MembersArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let all = client.call(&MemberList {}).await?.members;
    match args {
        args::MembersArgs::Ls(args) => {
            list(&args, all, output);
            Ok(Ending::Done)
        }
        args::MembersArgs::Rm(args) => {
            remove(&args, &all, settings.identity()?.about.member, client, output).await
        }
    }
}

fn list(args: &MembersLsArgs, all: Vec<MemberAbout>, output: &Output) {
    let shown = |member: &&MemberAbout| {
        (args.revoked || !member.revoked) && args.role.is_none_or(|role| role == member.role)
    };
    let members = Members { members: all.iter().filter(shown).cloned().collect() };
    output.result(&members, |members| {
        let [joined, seen] = ["joined", "last seen"].map(in_zone);
        let mut head = vec!["no", "name", "role", &joined, "invited by", &seen];
        let mut rows: Vec<_> = members.members.iter().map(|member| row(member, &all)).collect();
        if args.revoked || members.members.iter().any(|member| member.is_behind) {
            head.push("");
            for (row, member) in rows.iter_mut().zip(&members.members) {
                let (revoked, is_behind) = (member.revoked, member.is_behind);
                let said = if revoked { "removed, or left" } else { "trusts an earlier authority" };
                row.push(if revoked || is_behind { said } else { "" }.into());
            }
        }
        table(&head, &[0], &rows)
    });
}

fn row(member: &MemberAbout, all: &[MemberAbout]) -> Vec<String> {
    vec![
        member.member.to_string(),
        member.name.clone(),
        member.role.to_string(),
        time(member.joined_wall_ms),
        member.invited_by.map_or_else(|| "-".into(), |by| called(by, all)),
        member.seen_wall_ms.map_or_else(|| "never".into(), time),
    ]
}

/// Formats a member by name and number, or by number alone if the name is unknown.
pub fn called(id: MemberId, all: &[MemberAbout]) -> String {
    match all.iter().find(|member| member.member == id) {
        Some(member) => format!("{} ({id})", member.name),
        None => id.to_string(),
    }
}

#[derive(Serialize)]
struct RemovedMembers<'a> {
    members: &'a [&'a MemberAbout],
    removed: bool,
    /// The invitations that these members made and that nobody has used: they let nobody in any more.
    void_invitations: &'a [Invitation],
    /// The judgement of whether the donors among them may go together; `None` if none is a donor.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_go: Option<&'a MayGo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    less_safe_files: Option<u64>,
}

impl<'a> RemovedMembers<'a> {
    fn of(
        members: &'a [&'a MemberAbout],
        void_invitations: &'a [Invitation],
        look: Option<&'a GivingBack>,
        removed: bool,
    ) -> Self {
        Self {
            members,
            removed,
            void_invitations,
            may_go: look.map(|look| &look.may_go),
            lost_files: look.map(|look| look.lost_files),
            less_safe_files: look.map(|look| look.less_safe_files),
        }
    }
}

async fn remove(
    args: &MembersRmArgs,
    all: &[MemberAbout],
    own: MemberId,
    client: &Pool,
    output: &Output,
) -> Result<Ending, Failure> {
    // All members are found before any is removed.
    let mut named = Vec::new();
    for text in &args.members {
        let member = pick(all, text)?;
        if !named.contains(&member) {
            named.push(member);
        }
    }
    if named.iter().any(|member| member.member == own) {
        let what = "one of them is you";
        return Err(Failure::new(ErrorKind::Conflict, code::NOT_ALLOWED, what)
            .hint("`potluck leave` ends your own membership"));
    }
    let donors = named.iter().filter(|member| member.role == Role::Donor && !member.revoked);
    let donors: Vec<_> = donors.collect();
    // The donors are judged together, because none of them may rely on chunks of another that goes as well.
    let look = match donors.is_empty() {
        true => None,
        false => {
            let donors = donors.iter().map(|member| DonorId(member.member.0)).collect();
            Some(client.call(&Departing { donors, over: None }).await?)
        }
    };
    let names = donors.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(" and ");
    let void = open_invitations(&named, client).await?;
    if args.caution.dry_run {
        let removed = RemovedMembers::of(&named, &void, look.as_ref(), false);
        output.result(&removed, |_| {
            let removed = members(&named);
            let listed = rows(&named, all);
            match &look {
                Some(look) if is_needed(look) => {
                    format!("{removed} would not be removed:\n{listed}{}", removable(&names, look))
                }
                Some(look) => {
                    let may = removable(&names, look);
                    let void = void_said(&void, all);
                    format!("{removed} would be removed from the pool:\n{listed}{void}{may}")
                }
                None => {
                    let void = void_said(&void, all);
                    format!("{removed} would be removed from the pool:\n{listed}{void}")
                }
            }
        });
        return Ok(look.as_ref().map_or(Ending::Done, |look| would_end(look, false, false)));
    }
    if let Some(look) = look.as_ref().filter(|look| is_needed(look)) {
        return Err(needed(&names, look));
    }
    if !args.caution.yes {
        output.note(format!("{}{}", rows(&named, all), void_said(&void, all)).trim_end());
        let question = format!("remove {} from the pool for ever?", members(&named));
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    let advised = rekey_advised(client).await?;
    for member in &named {
        client.call(&Revoke::of(member.member)).await?;
    }
    output.result(&RemovedMembers::of(&named, &void, look.as_ref(), true), |_| {
        let names: Vec<_> = named.iter().map(|member| called(member.member, all)).collect();
        let mut text = format!("removed: {}", names.join(", "));
        if named.iter().any(|member| member.role == Role::Donor) {
            text.push_str("\non a donor's machine, `potluck leave` takes away what is left there");
        }
        if !void.is_empty() {
            text.push_str(&format!("\nvoid now: {}", numbers(&void)));
        }
        text
    });
    advise_rekey(rekey_advised(client).await?.difference(&advised), output);
    Ok(Ending::Done)
}

/// Returns the invitations that these members made, and by which somebody may still join.
async fn open_invitations(
    named: &[&MemberAbout],
    client: &Pool,
) -> Result<Vec<Invitation>, Failure> {
    let mut open = client.call(&InvitationList {}).await?.invitations;
    let is_theirs = |by: MemberId| named.iter().any(|member| member.member == by);
    open.retain(|it| it.used_by.is_none() && it.left_seconds > 0 && is_theirs(it.by));
    Ok(open)
}

/// Says which invitations are void after a removal; nothing if there are none.
fn void_said(void: &[Invitation], all: &[MemberAbout]) -> String {
    let one = |it: &Invitation| {
        let (by, left) = (called(it.by, all), duration(it.left_seconds));
        format!(
            "invitation {} of {by}, for {}, would be void; it is open for {left}\n",
            it.invitation,
            an(it.role)
        )
    };
    void.iter().map(one).collect()
}

fn an(role: Role) -> &'static str {
    match role {
        Role::Admin => "an admin",
        Role::User => "a user",
        Role::Donor => "a donor",
    }
}

fn numbers(void: &[Invitation]) -> String {
    let numbers = void.iter().map(|it| it.invitation.to_string()).collect::<Vec<_>>().join(", ");
    format!("{} ({numbers})", count(void.len() as u64, "invitation"))
}

fn rows(named: &[&MemberAbout], all: &[MemberAbout]) -> String {
    let rows: Vec<_> = named.iter().map(|member| row(member, all)).collect();
    table(
        &["no", "name", "role", &in_zone("joined"), "invited by", &in_zone("last seen")],
        &[0],
        &rows,
    )
}

fn members(named: &[&MemberAbout]) -> String {
    match named {
        [one] => format!("{} “{}” ({})", one.role, one.name, one.member),
        several => count(several.len() as u64, "member"),
    }
}

/// Returns whether files need what donors have, or that is not known yet.
fn is_needed(look: &GivingBack) -> bool {
    look.removal != Some(RemovalNeeds::Nothing)
}

/// Makes the failure that says why donors are not removed, and what to do.
fn needed(names: &str, look: &GivingBack) -> Failure {
    let hint = "move what each holds to others first: `potluck drain`; `potluck nodes rm` has \
                --now and --force, and -n says what they mean";
    match look.removal.unwrap_or_default() {
        RemovalNeeds::Nothing | RemovalNeeds::Time => {
            let why = &look.may_go.why;
            let what = format!("whether {names} may go is not known yet: {why}");
            Failure::new(ErrorKind::Retry, code::STUCK, what).hint("ask again in a moment")
        }
        RemovalNeeds::Now => {
            let what = format!("without {names}, {}", weakened(look));
            Failure::new(ErrorKind::Conflict, code::NOT_EMPTY, what).hint(hint)
        }
        RemovalNeeds::Force => {
            let what = only_there(names, look);
            Failure::new(ErrorKind::Conflict, code::NOT_EMPTY, what).hint(hint)
        }
    }
}

/// Finds the member that a user means by name, or by number, which is never a name. A member that was removed is found
/// only by number; removing it again changes nothing.
fn pick<'a>(all: &'a [MemberAbout], text: &str) -> Result<&'a MemberAbout, Failure> {
    if is_number(text) {
        let numbered = all.iter().find(|member| member.member.to_string() == text);
        return numbered.ok_or_else(|| nobody(text));
    }
    let named: Vec<_> =
        all.iter().filter(|member| !member.revoked && member.name == text).collect();
    match &named[..] {
        [one] => Ok(one),
        [] => Err(nobody(text)),
        several => {
            let one = |member: &&MemberAbout| format!("{} ({})", member.member, member.role);
            let numbers = several.iter().map(one).collect::<Vec<_>>().join(", ");
            let what = format!("{} members are called “{text}”: numbers {numbers}", several.len());
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("say which by its number; `potluck members ls` tells more of them"))
        }
    }
}

fn nobody(text: &str) -> Failure {
    let what = format!("no member is called “{text}”");
    Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
        .hint("`potluck members ls` lists their names and numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u32, name: &str, revoked: bool) -> MemberAbout {
        MemberAbout {
            member: MemberId(number),
            name: name.into(),
            role: Role::User,
            joined_wall_ms: 0,
            invited_by: Some(MemberId(1)),
            seen_wall_ms: None,
            is_behind: false,
            revoked,
        }
    }

    #[test]
    fn a_name_that_several_have_is_refused_with_their_numbers() {
        let all = [
            member(2, "ada", false),
            member(3, "eve", true),
            member(4, "eve", false),
            member(5, "bob", false),
            member(6, "bob", false),
            member(7, "2", false),
        ];
        let picked = |text| pick(&all, text).map(|member| member.member.0);
        assert_eq!(picked("ada"), Ok(2));
        assert_eq!(picked("eve"), Ok(4), "the other was removed");
        assert_eq!(picked("3"), Ok(3));
        assert_eq!(picked("2"), Ok(2), "a number is never a name");
        let why = picked("bob").expect_err("two");
        assert_eq!(why.kind, ErrorKind::Usage);
        assert!(why.message.contains("5 (user), 6 (user)"), "{why}");
        assert_eq!(picked("nobody").expect_err("none").kind, ErrorKind::NotFound);
    }
}
