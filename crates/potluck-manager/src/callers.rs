//! The member list, by which every request learns from a certificate who makes the call.

use crate::access_keys::ActingKey;
use potluck_catalog::StoredMember;
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::rights::is_number;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// The member list, kept equal to the catalog's.
#[derive(Debug, Default)]
pub struct KnownMembers {
    by_certificate: RwLock<HashMap<Digest, Entry>>,
    owners: RwLock<OwnersOfDonors>,
}

/// The owner of each donor: the first donor in the chain of donors that invited it, or the donor itself if no donor
/// invited it. A donor can invite more donors without an admin, and these share its part of limited resources.
#[derive(Debug, Default)]
struct OwnersOfDonors(BTreeMap<MemberId, MemberId>);

impl OwnersOfDonors {
    /// Notes the owner of a donor; other members have none. Members that joined before must have been noted before.
    fn note(&mut self, member: &StoredMember) {
        if member.role == Role::Donor {
            let inviter = member.invited_by.and_then(|by| self.0.get(&by).copied());
            self.0.insert(member.id, inviter.unwrap_or(member.id));
        }
    }
}

#[derive(Debug)]
struct Entry {
    member: StoredMember,
    /// The wall time of the member's last call in milliseconds; 0 if there was none yet.
    seen_wall_ms: AtomicI64,
}

impl Entry {
    fn new(member: StoredMember) -> Self {
        Self { seen_wall_ms: member.seen_wall_ms.unwrap_or(0).into(), member }
    }

    fn seen(&self) -> Option<i64> {
        Some(self.seen_wall_ms.load(Ordering::Relaxed)).filter(|seen| *seen != 0)
    }
}

impl KnownMembers {
    /// Makes a list of these members.
    pub fn new(mut members: Vec<StoredMember>) -> Self {
        members.sort_by_key(|member| member.id);
        let mut owners = OwnersOfDonors::default();
        members.iter().for_each(|member| owners.note(member));
        let by_fingerprint = |member: StoredMember| (member.fingerprint, Entry::new(member));
        let by_certificate = RwLock::new(members.into_iter().map(by_fingerprint).collect());
        Self { by_certificate, owners: RwLock::new(owners) }
    }

    /// Puts a member that joined or changed on the list.
    pub fn put(&self, mut member: StoredMember) {
        self.owners.write().expect("no holder panics").note(&member);
        let mut members = self.by_certificate.write().expect("no holder panics");
        let seen = members.get(&member.fingerprint).and_then(Entry::seen);
        member.seen_wall_ms = seen.max(member.seen_wall_ms);
        members.insert(member.fingerprint, Entry::new(member));
    }

    /// Takes members off the list, whose membership ended long ago.
    pub fn forget(&self, ended: &[MemberId]) {
        if ended.is_empty() {
            return;
        }
        let mut owners = self.owners.write().expect("no holder panics");
        owners.0.retain(|member, _| !ended.contains(member));
        let mut members = self.by_certificate.write().expect("no holder panics");
        members.retain(|_, entry| !ended.contains(&entry.member.id));
    }

    /// Returns the owner of a member: for a donor that another donor invited, the first donor in that chain of
    /// invitations, and otherwise the member itself.
    pub fn owner(&self, member: MemberId) -> MemberId {
        let owners = self.owners.read().expect("no holder panics");
        owners.0.get(&member).copied().unwrap_or(member)
    }

    /// Returns all members in order of their numbers, revoked ones included, with the time at which each was seen last.
    pub fn all(&self) -> Vec<StoredMember> {
        let members = self.by_certificate.read().expect("no holder panics");
        let now =
            |entry: &Entry| StoredMember { seen_wall_ms: entry.seen(), ..entry.member.clone() };
        let mut all: Vec<_> = members.values().map(now).collect();
        all.sort_by_key(|member| member.id);
        all
    }

    /// Returns the names of those of these members who were not revoked, in order.
    pub fn names(&self, of: &[MemberId]) -> Vec<String> {
        // The event log asks about each donor each second, and about hardly any of them there is anybody to name.
        if of.is_empty() {
            return Vec::new();
        }
        let members = self.by_certificate.read().expect("no holder panics");
        let members = members.values().map(|entry| &entry.member);
        let wanted = members.filter(|member| !member.revoked && of.contains(&member.id));
        let mut names: Vec<_> = wanted.map(|member| member.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns the number of the user or admin with a name or a number. Fails if there is none, or several with the
    /// name.
    pub fn named(&self, who: &str) -> Result<MemberId, Failure> {
        let members = self.by_certificate.read().expect("no holder panics");
        let is_meant = |member: &StoredMember| match is_number(who) {
            true => member.id.to_string() == who,
            false => member.name == who,
        };
        let called = members.values().map(|entry| &entry.member).filter(|member| {
            !member.revoked && matches!(member.role, Role::User | Role::Admin) && is_meant(member)
        });
        let mut called: Vec<_> = called.map(|member| member.id).collect();
        called.sort();
        match called.as_slice() {
            [member] => Ok(*member),
            [] => {
                let what = format!("the pool has no user called “{who}”");
                Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                    .hint("admins see names and numbers with `potluck members ls`"))
            }
            several => {
                let numbers: Vec<_> = several.iter().map(ToString::to_string).collect();
                let what = format!("“{who}” may be any of the members {}", numbers.join(", "));
                Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                    .hint("say which, by number"))
            }
        }
    }

    /// Returns the member with a number, unless its membership ended.
    pub fn numbered(&self, id: MemberId) -> Option<KnownMember> {
        let members = self.by_certificate.read().expect("no holder panics");
        let mut members = members.values().map(|entry| &entry.member);
        let member = members.find(|member| member.id == id && !member.revoked)?;
        Some(KnownMember { member: id, role: member.role, name: member.name.clone() })
    }

    /// Returns the members that were seen, each with the wall time of its last call in milliseconds.
    pub fn seen(&self) -> Vec<(MemberId, i64)> {
        let members = self.by_certificate.read().expect("no holder panics");
        members.values().filter_map(|entry| Some((entry.member.id, entry.seen()?))).collect()
    }

    /// Returns the number of the member with the certificate of this fingerprint; `None` if nobody has it, or the
    /// membership has ended.
    pub fn with_certificate(&self, fingerprint: &Digest) -> Option<MemberId> {
        let members = self.by_certificate.read().expect("no holder panics");
        let entry = members.get(fingerprint).filter(|entry| !entry.member.revoked);
        entry.map(|entry| entry.member.id)
    }

    /// Returns the member with the certificate of this fingerprint, and notes that it was seen at this wall time. This
    /// is asked for each request, so that a revocation takes effect on open connections too (promise X5).
    pub fn identify(&self, fingerprint: &Digest, wall_ms: i64) -> Result<KnownMember, Failure> {
        let members = self.by_certificate.read().expect("no holder panics");
        let Some(entry) = members.get(fingerprint) else {
            let what = "this certificate is of the pool, but the manager does not know its member";
            return Err(Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what).hint(
                "if the manager was restored lately, it may lack members: an admin can restore it again with more donors, and \
                 nothing has to be done here. Otherwise ask an admin for a new token (`potluck invite`) and join into another \
                 directory: `potluck join - --state NEW`; `potluck leave --pool-is-gone` deletes what is left of this \
                 membership, a lent directory with it",
            ));
        };
        let StoredMember { id, role, name, revoked, .. } = &entry.member;
        if *revoked {
            let what = format!("{role} {id} ({name}) was removed from the pool, or left it");
            // Nobody asks about the chunks of a donor that is taken away, so its hint says how to bring them back
            // first.
            let hint = match role {
                Role::Donor => {
                    "to bring back all that is stored there: ask an admin for a new token (`potluck \
                     invite --role donor`), then `potluck join - --state NEW` and `potluck lend DIR \
                     --adopt-store --state NEW`; `potluck leave` deletes what is left of this membership, \
                     the lent directory with it"
                }
                Role::User | Role::Gateway | Role::Admin => {
                    "to join again: `potluck leave` takes what is left of this membership away, then \
                     ask an admin for a new token (`potluck invite`)"
                }
            };
            return Err(Failure::new(ErrorKind::Auth, code::REVOKED, what).hint(hint));
        }
        entry.seen_wall_ms.store(wall_ms, Ordering::Relaxed);
        Ok(KnownMember { member: *id, role: *role, name: name.clone() })
    }
}

/// Returns the donor that invited a donor for another directory of its machine; `None` if no donor invited it.
pub fn inviting_donor(members: &[StoredMember], invited: &StoredMember) -> Option<DonorId> {
    let inviter = members.iter().find(|member| Some(member.id) == invited.invited_by)?;
    (inviter.role == Role::Donor && invited.role == Role::Donor).then_some(DonorId(inviter.id.0))
}

/// A member who makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMember {
    /// The number of the member.
    pub member: MemberId,
    /// The role of the member.
    pub role: Role,
    /// The name of the member.
    pub name: String,
}

/// The caller of a call, who need not be a member.
#[derive(Debug, Clone)]
pub struct CallingMember {
    /// The member; `None` for a caller without a certificate, and for a join.
    pub who: Option<KnownMember>,
    /// The access key by which a gateway calls on behalf of `who`; `None` where a member calls for itself.
    pub key: Option<ActingKey>,
    /// The address from which the call came.
    pub peer: IpAddr,
    /// The number of the connection over which the call came; 0 where there is none.
    pub connection: u64,
}

/// The number that stands for all callers without a certificate: no member has it.
const STRANGERS: MemberId = MemberId(0);

impl CallingMember {
    /// Returns the number by which the caller waits for its turns: all callers without a certificate have one together.
    pub fn number(&self) -> MemberId {
        self.who.as_ref().map_or(STRANGERS, |who| who.member)
    }

    /// Refuses a caller that may not be given the keys of sealed spaces that it reads or writes.
    ///
    /// Errors: [`code::BAD_KEY`] for a gateway whose user did not allow it.
    pub fn need_unsealing(&self) -> Result<(), Failure> {
        self.key.as_ref().map_or(Ok(()), ActingKey::need_unsealing)
    }

    /// Returns the member who calls, or an error if the caller is none.
    pub fn member(&self) -> Result<&KnownMember, Failure> {
        self.who.as_ref().ok_or_else(|| {
            Failure::new(
                ErrorKind::Auth,
                code::NOT_A_MEMBER,
                "this call needs a certificate of the pool, and none was shown",
            )
            .hint("join the pool first: `potluck join -`, with a token from `potluck invite`")
        })
    }
}
