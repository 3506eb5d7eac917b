//! `potluck members`: lists and removes members of the pool.

use super::Ending;
use super::drain::at_once;
use super::space::{advise_rekey, rekey_advised};
use crate::args::{self, Caution, MembersLsArgs, MembersRmArgs};
use crate::command_settings::CommandSettings;
use crate::confirm::confirm;
use crate::output::{Output, count, duration, in_zone, table, time};
use potluck_client::Pool;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::rights::is_number;
use potluck_wire::control::{
    Departing, GivingBack, Going, Invitation, InvitationList, MayGo, MemberAbout, MemberList,
    Members, RemovalNeeds, Revoke,
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
            remove(args, &all, settings.identity()?.about.member, client, output).await
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
    /// What it means that the donors among them go together; `None` if none is a donor.
    #[serde(flatten)]
    look: Option<DonorsRemoved<'a>>,
}

#[derive(Serialize)]
struct DonorsRemoved<'a> {
    may_go: &'a MayGo,
    lost: &'a [String],
    lost_files: u64,
    less_safe: &'a [String],
    less_safe_files: u64,
}

impl<'a> DonorsRemoved<'a> {
    fn of(look: &'a GivingBack) -> Self {
        let GivingBack { may_go, lost, lost_files, less_safe, less_safe_files, .. } = look;
        let (lost_files, less_safe_files) = (*lost_files, *less_safe_files);
        Self { may_go, lost, lost_files, less_safe, less_safe_files }
    }
}

async fn remove(
    args: MembersRmArgs,
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
    let caution = args.caution;
    MemberRemoval { named, now: false, force: false, caution }.run(all, client, output).await
}

/// The removal of members.
pub struct MemberRemoval<'a> {
    /// The members that are to be removed.
    pub named: Vec<&'a MemberAbout>,
    /// True if files may be less safe without the donors among them until repair has made them whole.
    pub now: bool,
    /// True if files may be lost with the donors among them.
    pub force: bool,
    /// Whether the user is asked.
    pub caution: Caution,
}

impl MemberRemoval<'_> {
    /// Removes the members, once the user has agreed. The manager refuses while files need donors among them, unless the
    /// removal says otherwise.
    pub async fn run(
        self,
        all: &[MemberAbout],
        client: &Pool,
        output: &Output,
    ) -> Result<Ending, Failure> {
        let Self { named, now, force, caution } = self;
        let donors = || named.iter().filter(|it| it.role == Role::Donor && !it.revoked);
        // The donors are judged together, because none of them may rely on chunks of another that goes as well.
        let look = match donors().next() {
            None => None,
            Some(_) => {
                let donors = donors().map(|member| DonorId(member.member.0)).collect();
                Some(client.call(&Departing { donors, over: None }).await?)
            }
        };
        let needs = look.as_ref().map(|look| look.removal.unwrap_or_default());
        let needs = needs.unwrap_or(RemovalNeeds::Nothing);
        let may = needs.is_met(now, force);
        let void = open_invitations(&named, client).await?;
        let about = || {
            let names: Vec<_> = donors().map(|member| member.name.as_str()).collect();
            let removable = look.as_ref().map(|look| removable(&names.join(" and "), look));
            format!(
                "{}{}{}",
                rows(&named, all),
                void_said(&void, all),
                removable.unwrap_or_default()
            )
        };
        let result = |removed| {
            let look = look.as_ref().map(DonorsRemoved::of);
            RemovedMembers { members: &named, removed, void_invitations: &void, look }
        };
        if caution.dry_run {
            let would = if may { "would be removed from the pool" } else { "would not be removed" };
            output.result(&result(false), |_| format!("{} {would}:\n{}", members(&named), about()));
            return Ok(match needs {
                _ if may => Ending::Done,
                RemovalNeeds::Time => Ending::Said(ErrorKind::Retry),
                _ => Ending::Said(ErrorKind::Conflict),
            });
        }
        // The user is not asked to confirm a removal that will be refused.
        if !caution.yes && (may || needs == RemovalNeeds::Time) {
            output.note(about().trim_end());
            let loss = match look.as_ref().map_or(0, |look| look.lost_files) {
                0 => String::new(),
                lost => format!(" and lose {}", count(lost, "file")),
            };
            let question = format!("remove {} from the pool{loss} for ever?", members(&named));
            confirm(&question, "add -y to do it without asking, or -n to only look").await?;
        }
        let advised = rekey_advised(client).await?;
        let agreed = look.as_ref().filter(|_| force).and_then(|look| look.listing);
        let removed = named.iter().map(|member| member.member).collect();
        client.call(&Revoke { members: removed, now: now || force, agreed }).await?;
        output.result(&result(true), |_| {
            let names: Vec<_> = named.iter().map(|member| called(member.member, all)).collect();
            let mut text = format!("removed: {}", names.join(", "));
            if named.iter().any(|member| member.role == Role::Donor) {
                text.push_str(
                    "\non a donor's machine, `potluck leave` takes away what is left there",
                );
            }
            if !void.is_empty() {
                text.push_str(&format!("\nvoid now: {}", numbers(&void)));
            }
            text
        });
        advise_rekey(rekey_advised(client).await?.difference(&advised), output);
        Ok(Ending::Done)
    }
}

/// Says whether donors may be removed as they are, and what that would mean.
fn removable(name: &str, look: &GivingBack) -> String {
    let MayGo { verdict, why, advice } = &look.may_go;
    let may = match verdict {
        Going::Now => return format!("{name} may go: {why}"),
        Going::AfterMoving => format!("{name} may go once it is drained: {why} ({advice})"),
        Going::Stuck => format!("{name} may not go now: {why}; {advice}"),
        Going::NotKnown => format!("whether {name} may go is not known yet: {why}; {advice}"),
    };
    let needs = match (look.lost_files, look.less_safe_files) {
        (0, 0) => "",
        (0, _) => "it is not removed without --now of `potluck nodes rm`: ",
        _ => "it is not removed without --force of `potluck nodes rm`: ",
    };
    format!("{may}\n{needs}{}", at_once(look))
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
        Role::Gateway => "a gateway",
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
