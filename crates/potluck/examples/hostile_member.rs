//! A member that does what the command line never would, for `cargo xtask torture`, which has it do so beside others.
//!
//! It may read and write in one space and nothing else. It prints one JSON object of what it tried, and ends with 1
//! if it was let do anything that it may not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::{DonorId, Incarnation, MemberId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Override};
use potluck_core::recipe;
use potluck_core::rights::Rights;
use potluck_wire::bulk::{BulkIo, BulkStatus, Request};
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Abort, Call, Commit, Condition, CopyFault, DonorAccess, FileCommit, GcResume, Inventory,
    Invite, List, Locate, MakeDir, Move, Offer, Open, Outcome, Remove, RepairAction, RepairControl,
    Report, Reserve, Reserved, Revoke, ScrubNow, SpaceGrant, SpaceRemove, Stat, Trust, Unreached,
    Usage,
};
use potluck_wire::error::{ErrorKind, Failure};
use potluck_wire::identity::Identity;
use potluck_wire::net::{BoxStream, Net, SystemNet};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Acknowledged, Caveat, Ops, Receipt, Secret, Ticket};
use potluck_wire::tls::{TlsDial, install_provider};
use potluck_wire::token::Role;
use potluck_wire::upgrade::{self, OpenedBulk, UpgradeError};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Bytes of a chunk that it stores.
const CHUNK: usize = 20_000;
/// More than a donor takes of a session that small, with all that the manager allows for.
const BEYOND: usize = 16 << 20;
/// Bytes of each chunk in that.
const LARGE: usize = 1 << 20;
/// Nothing is waited for longer: a donor may be dead or frozen meanwhile.
const DEADLINE: Duration = Duration::from_secs(5);
/// Connections that say nothing.
const CROWD: usize = 40;

#[derive(Parser)]
struct Options {
    /// Where its identity is
    #[arg(long)]
    identity: PathBuf,
    /// What it does follows from this
    #[arg(long)]
    seed: u64,
    /// How much it does
    #[arg(long)]
    acts: u64,
    /// The space in which it may read and write
    #[arg(long)]
    own: String,
    /// Spaces in which it may do nothing
    #[arg(long)]
    other: Vec<String>,
}

/// What came of an attempt.
enum Came {
    /// It was refused, or did nothing that anybody else would notice.
    ToNothing,
    /// Whoever was asked was away.
    Unanswered,
    /// It was let do what it may not: the words say what.
    LetThrough(String),
}

/// A kind of attempt.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Calls in spaces of others, and calls of admins and donors.
    Trespass,
    /// A reservation of more than there is.
    HugeReservation,
    /// Files of chunks that no donor acknowledged.
    MadeUpReceipts,
    /// Chunks that are stored and never offered or committed.
    StoredAndLeft,
    /// More chunks than were reserved.
    StoredBeyondReservation,
    /// Offers of more chunks than were reserved.
    OfferBeyondReservation,
    /// Complaints about copies and donors that are good.
    Complaints,
    /// Tickets made up, widened, or shown to another donor.
    ForgedTickets,
    /// Frames that are none, on a connection with a good ticket.
    BrokenFrames,
    /// Bytes of a stranger on every port.
    Garbage,
    /// Connections that say nothing and stay.
    Crowd,
}

const ACTS: [Act; 11] = [
    Act::Trespass,
    Act::HugeReservation,
    Act::MadeUpReceipts,
    Act::StoredAndLeft,
    Act::StoredBeyondReservation,
    Act::OfferBeyondReservation,
    Act::Complaints,
    Act::ForgedTickets,
    Act::BrokenFrames,
    Act::Garbage,
    Act::Crowd,
];

struct Member {
    caller: Caller,
    identity: Identity,
    own: String,
    others: Vec<String>,
    draw: u64,
    crowd: Vec<BoxStream>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    install_provider();
    let identity = Identity::load(&options.identity).expect("an identity");
    let dial = TlsDial::member(&identity).expect("a usable identity");
    let manager = identity.about.manager.clone();
    let mut member = Member {
        caller: Caller::new(Arc::new(SystemNet), Arc::new(dial), manager),
        identity,
        own: options.own,
        others: options.other,
        draw: options.seed,
        crowd: Vec::new(),
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let (mut acts, mut refused, mut unanswered) = (BTreeMap::<String, u64>::new(), 0, 0);
    let mut let_through = Vec::new();
    for _ in 0..options.acts {
        let act = ACTS[member.below(ACTS.len() as u64) as usize];
        *acts.entry(format!("{act:?}")).or_default() += 1;
        match runtime.block_on(member.attempt(act)) {
            Came::ToNothing => refused += 1,
            Came::Unanswered => unanswered += 1,
            Came::LetThrough(what) => let_through.push(format!("{act:?}: {what}")),
        }
    }
    let bad = !let_through.is_empty();
    println!(
        "{}",
        json!({"acts": acts, "refused": refused, "unanswered": unanswered, "let_through": let_through})
    );
    ExitCode::from(u8::from(bad))
}

impl Member {
    /// A number below `end` (SplitMix64).
    fn below(&mut self, end: u64) -> u64 {
        self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.draw;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.below(u64::MAX).to_le_bytes());
        words.take(len).collect()
    }

    fn other(&mut self) -> String {
        let number = self.below(self.others.len() as u64) as usize;
        self.others[number].clone()
    }

    async fn attempt(&mut self, act: Act) -> Came {
        match act {
            Act::Trespass => self.trespass().await,
            Act::HugeReservation => {
                let bytes = u64::MAX - self.below(1 << 40);
                let reserved = self.reserve(Some(bytes)).await;
                reserved.map_or_else(Came::of, |_| Came::let_through("it was promised"))
            }
            Act::MadeUpReceipts => self.in_a_session(Self::commit_what_nobody_has).await,
            Act::StoredAndLeft => self.in_a_session(Self::store_and_leave).await,
            Act::StoredBeyondReservation => self.in_a_session(Self::store_without_end).await,
            Act::OfferBeyondReservation => self.in_a_session(Self::offer_without_end).await,
            Act::Complaints => self.in_a_session(Self::complain).await,
            Act::ForgedTickets => self.in_a_session(Self::show_forged_tickets).await,
            Act::BrokenFrames => self.in_a_session(Self::send_broken_frames).await,
            Act::Garbage => self.in_a_session(Self::send_garbage).await,
            Act::Crowd => self.crowd().await,
        }
    }

    // ---- calls

    async fn call<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        self.caller.call(request).await
    }

    /// A call that must be refused for want of rights; a space that it may not see is not there for it.
    async fn forbidden<C: Call>(&self, request: &C) -> Came {
        match self.call(request).await {
            Ok(_) => Came::LetThrough(format!("`{}` was carried out", C::NAME)),
            Err(why) if matches!(why.kind, ErrorKind::Auth | ErrorKind::NotFound) => {
                Came::ToNothing
            }
            Err(why) if why.kind == ErrorKind::Retry => Came::Unanswered,
            Err(why) => Came::LetThrough(format!("`{}` was looked into: {why:?}", C::NAME)),
        }
    }

    async fn trespass(&mut self) -> Came {
        let (space, donor) = (self.other(), DonorId(self.below(9) as u32));
        let at =
            |name: &str| -> PoolPath { format!("pot://{space}/{name}").parse().expect("a path") };
        let file = at(&format!("file-{}", self.below(14)));
        let (all, own) = (at(""), format!("pot://{}/taken", self.own).parse().expect("a path"));
        let (incarnation, policy) = (Incarnation(self.below(u64::MAX)), Override::default());
        match self.below(20) {
            0 => {
                self.forbidden(&Open { path: file, recursive: false, after: None, leased: false })
                    .await
            }
            1 => {
                self.forbidden(&Open { path: all, recursive: true, after: None, leased: false })
                    .await
            }
            2 => {
                let stat =
                    Stat { path: file, chunks: true, unjudged: false, room: false, after: None };
                self.forbidden(&stat).await
            }
            3 => self.forbidden(&List { path: all, recursive: true, after: None }).await,
            4 => {
                self.forbidden(&Remove {
                    path: file,
                    recursive: false,
                    forever: false,
                    only_if: Default::default(),
                    soon: false,
                })
                .await
            }
            5 => {
                self.forbidden(&Remove {
                    path: all,
                    recursive: true,
                    forever: false,
                    only_if: Default::default(),
                    soon: false,
                })
                .await
            }
            6 => {
                self.forbidden(&Move {
                    from: file,
                    to: own,
                    no_replace: false,
                    replaces: None,
                    soon: false,
                })
                .await
            }
            7 => {
                self.forbidden(&MakeDir {
                    path: at("made"),
                    parents: true,
                    permissions: Permissions::DIR,
                    owner: None,
                })
                .await
            }
            8 => {
                let (bytes, condition) = (Some(1000), Condition::Always);
                self.forbidden(&Reserve {
                    path: file,
                    bytes,
                    policy,
                    condition,
                    interrupted: Default::default(),
                    link: None,
                })
                .await
            }
            9 => self.forbidden(&Usage { path: all, after: None }).await,
            10 => self.forbidden(&SpaceRemove { name: space.clone(), recursive: true }).await,
            11 => {
                let who = self.identity.about.name.clone();
                let grant = SpaceGrant { space: space.clone(), who, rights: Rights::ALL };
                self.forbidden(&grant).await
            }
            12 => {
                self.forbidden(&Invite { role: Role::Admin, ttl_seconds: 1000, name: None }).await
            }
            13 => self.forbidden(&Revoke::of(MemberId(donor.0))).await,
            14 => self.forbidden(&Trust { donor }).await,
            15 => self.forbidden(&ScrubNow { donor: Some(donor), rate: 1 << 30 }).await,
            16 => self.forbidden(&RepairControl { action: RepairAction::Pause }).await,
            17 => self.forbidden(&GcResume {}).await,
            18 => {
                let (page, holdings, last) = (0, Packed::default(), true);
                self.forbidden(&Inventory { incarnation, page, holdings, last }).await
            }
            _ => self.forbidden(&Locate { donor }).await,
        }
    }

    async fn reserve(&self, bytes: Option<u64>) -> Result<Reserved, Failure> {
        let path = format!("pot://{}/file", self.own).parse().expect("a path");
        let (policy, condition) = (Override::default(), Condition::Always);
        self.call(&Reserve {
            path,
            bytes,
            policy,
            condition,
            interrupted: Default::default(),
            link: None,
        })
        .await
    }

    /// Does something in a session of its own, and ends that, or does not.
    async fn in_a_session(&mut self, act: impl AsyncFnOnce(&mut Self, &Reserved) -> Came) -> Came {
        let session = match self.reserve(Some(CHUNK as u64 * 4)).await {
            Ok(session) => session,
            Err(why) => return Came::of(why),
        };
        let came = act(self, &session).await;
        if self.below(2) == 0 {
            let keep = self.below(2) == 0;
            // The session may be over already, or the manager away.
            let _ = self.call(&Abort { session: session.session, keep }).await;
        }
        came
    }

    async fn commit_what_nobody_has(&mut self, session: &Reserved) -> Came {
        let name = ChunkName(self.digest().0);
        let donors = session.donors.iter().map(|access| access.donor);
        let receipt = self.bytes(Receipt::SIZE).try_into().expect("as many bytes");
        let receipt = Receipt::from_bytes(&receipt);
        let of = |donor| Acknowledged { chunk: 0, donor, ack: AckLevel::Disk, receipt };
        let acknowledged: Vec<Acknowledged> = donors.map(of).collect();
        let digest = self.digest();
        let entry =
            recipe::Entry { name, digest: Digest(name.0), len: CHUNK as u32, sealed: false };
        let file = FileCommit {
            metadata: None,
            path: format!("pot://{}/nothing", self.own).parse().expect("a path"),
            size: CHUNK as u64,
            digest,
            mtime: FileTime::of_ms(0),
            permissions: Permissions::FILE,
            owner: None,
            changed: FileTime::default(),
            accessed: None,
            origin: None,
            chunk_size: 1 << 16,
            copies: 1,
            inline: None,
            pages: recipe::pack(&digest, &[entry][..].into()).into_iter().map(Blob).collect(),
            ec: None,
            parity: Packed::default(),
            acknowledged: Packed(acknowledged),
            condition: Condition::Always,
            in_parts: None,
        };
        let (batch, files) = (0, vec![file]);
        let commit = Commit {
            session: session.session,
            batch,
            files,
            done: true,
            soon: false,
            traffic: Vec::new(),
        };
        match self.call(&commit).await {
            Ok(done) => match done.files.first() {
                Some(Outcome::Stored { .. }) => Came::let_through("the file is visible"),
                Some(Outcome::Refused(_)) | None => Came::ToNothing,
            },
            Err(why) => Came::of(why),
        }
    }

    async fn offer_without_end(&mut self, session: &Reserved) -> Came {
        let chunks: Vec<ChunkName> = (0..20_000).map(|_| ChunkName(self.digest().0)).collect();
        let (session, chunks) = (session.session, Packed(chunks));
        let offer = Offer { session, chunks, ack: AckLevel::Disk, so_far: None };
        let offered = self.call(&offer).await;
        offered.map_or_else(Came::of, |_| Came::let_through("20,000 chunks were taken down"))
    }

    async fn complain(&mut self, session: &Reserved) -> Came {
        let faults = [CopyFault::Missing, CopyFault::WrongBytes, CopyFault::Unreadable];
        for access in session.donors.iter().take(3) {
            let body = self.bytes(CHUNK);
            let stored = self.put(access, &body).await;
            let chunk =
                if stored.is_ok() { ChunkName::of(&body) } else { ChunkName(self.digest().0) };
            let (donor, fault) = (access.donor, faults[self.below(3) as usize]);
            for _ in 0..3 {
                // The manager may believe the report or not: what comes of it is seen by others.
                let _ = self.call(&Report { chunk, donor, fault }).await;
            }
            let _ = self.call(&Unreached { donor }).await;
        }
        Came::ToNothing
    }

    // ---- bulk

    fn digest(&mut self) -> Digest {
        Digest(self.bytes(32).try_into().expect("32 bytes"))
    }

    fn any_donor(&mut self, session: &Reserved) -> DonorAccess {
        let number = self.below(session.donors.len() as u64) as usize;
        session.donors[number].clone()
    }

    async fn put(&self, access: &DonorAccess, body: &[u8]) -> Result<BulkStatus, ()> {
        let mut opened = open(access, access.ticket.as_ref().ok_or(())?).await.map_err(drop)?;
        put(&mut opened, body).await
    }

    async fn store_and_leave(&mut self, session: &Reserved) -> Came {
        let (access, body) = (self.any_donor(session), self.bytes(CHUNK));
        match self.put(&access, &body).await {
            Ok(BulkStatus::Ok) => Came::ToNothing,
            _ => Came::Unanswered,
        }
    }

    async fn store_without_end(&mut self, session: &Reserved) -> Came {
        let access = self.any_donor(session);
        let Some(ticket) = &access.ticket else { return Came::Unanswered };
        let Ok(mut opened) = open(&access, ticket).await else { return Came::Unanswered };
        for _ in 0..BEYOND / LARGE {
            let body = self.bytes(LARGE);
            match put(&mut opened, &body).await {
                Ok(BulkStatus::Ok) => {}
                Ok(BulkStatus::Denied) => return Came::ToNothing,
                Ok(_) | Err(()) => return Came::Unanswered,
            }
        }
        Came::LetThrough(format!("a session of {} bytes stored {BEYOND} on one donor", 4 * CHUNK))
    }

    async fn show_forged_tickets(&mut self, session: &Reserved) -> Came {
        let access = self.any_donor(session);
        let Some(good) = access.ticket.clone() else { return Came::Unanswered };
        let narrowed = |caveats: &[Caveat]| {
            let mut ticket = good.clone();
            caveats.iter().for_each(|caveat| ticket.narrow(caveat));
            ticket
        };
        let narrow = narrowed(&[Caveat::Ops(Ops::GET)]);
        let made_up = Secret::from_bytes(self.digest().0);
        let all = [
            Caveat::Donor(access.donor),
            Caveat::Ops(Ops::GET.and(Ops::PUT)),
            Caveat::Issued(1 << 40),
        ];
        let other = session.donors.iter().find(|other| other.donor != access.donor);
        let ticket = match self.below(6) {
            0 => Ticket::issue(&made_up, &SystemEntropy, &all),
            1 => Ticket { secret: made_up, ..good.clone() },
            2 => Ticket { public: good.public.clone(), secret: narrow.secret },
            3 => narrowed(&[Caveat::Expires(1)]),
            4 => match other.and_then(|other| other.ticket.clone()) {
                Some(ticket) => ticket,
                None => return Came::Unanswered,
            },
            _ => narrow,
        };
        let body = self.bytes(CHUNK);
        match open(&access, &ticket).await {
            Ok(mut opened) => match put(&mut opened, &body).await {
                Ok(BulkStatus::Ok) => Came::let_through("a chunk was stored"),
                // A connection that ends is a refusal, too.
                Ok(_) | Err(()) => Came::ToNothing,
            },
            Err(UpgradeError::Refused(_)) => Came::ToNothing,
            Err(_) => Came::Unanswered,
        }
    }

    async fn send_broken_frames(&mut self, session: &Reserved) -> Came {
        let (access, body) = (self.any_donor(session), self.bytes(CHUNK));
        let Some(ticket) = &access.ticket else { return Came::Unanswered };
        let Ok(mut opened) = open(&access, ticket).await else { return Came::Unanswered };
        let request = Request::put(ChunkName::of(&body), AckLevel::Memory, CHUNK as u32);
        let mut head = request.encode(1, &mut opened.lane);
        let cut = match self.below(3) {
            0 => {
                let at = self.below(head.len() as u64) as usize;
                head[at] ^= 1 << self.below(8);
                CHUNK
            }
            1 => {
                head = self.bytes(200);
                0
            }
            // This is half a body, and no more follows.
            _ => CHUNK / 2,
        };
        let sent = opened.io.write(&head, &body[..cut]).await;
        if sent.is_err() {
            return Came::ToNothing;
        }
        let _ = opened.io.0.shutdown().await;
        match timeout(DEADLINE, opened.inbox.reply(&mut opened.io)).await {
            Ok(Ok(Some((_, reply)))) if reply.status == BulkStatus::Ok => {
                Came::let_through("a frame that is none was answered")
            }
            Ok(_) => Came::ToNothing,
            Err(_) => Came::Unanswered,
        }
    }

    // ---- without saying who it is

    async fn send_garbage(&mut self, session: &Reserved) -> Came {
        let mut ports = vec![self.identity.about.manager.clone()];
        ports.extend(session.donors.iter().map(|access| access.addresses.clone()));
        let mut heard = false;
        for port in ports {
            let Some(address) = port.first().cloned() else { continue };
            let Ok(Ok(mut stream)) = timeout(DEADLINE, SystemNet.connect(address.as_str())).await
            else {
                continue;
            };
            let len = self.below(5000) as usize;
            let mut garbage = match self.below(3) {
                0 => b"POST /v1/status HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n".to_vec(),
                1 => vec![0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
                _ => b"GET /bulk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: potluck-bulk/1\r\npotluck-ticket: AAAA\r\n\r\n".to_vec(),
            };
            garbage.extend(self.bytes(len));
            // The peer may hang up while it is being talked to.
            let _ = timeout(DEADLINE, stream.write_all(&garbage)).await;
            let _ = timeout(DEADLINE, stream.read(&mut [0; 1000])).await;
            heard = true;
        }
        if heard { Came::ToNothing } else { Came::Unanswered }
    }

    async fn crowd(&mut self) -> Came {
        let Some(address) = self.identity.about.manager.first().cloned() else {
            return Came::Unanswered;
        };
        for _ in 0..CROWD {
            match timeout(DEADLINE, SystemNet.connect(address.as_str())).await {
                Ok(Ok(stream)) => self.crowd.push(stream),
                _ => return Came::Unanswered,
            }
        }
        Came::ToNothing
    }
}

impl Came {
    fn of(why: Failure) -> Self {
        if why.kind == ErrorKind::Retry { Self::Unanswered } else { Self::ToNothing }
    }

    fn let_through(what: &str) -> Self {
        Self::LetThrough(what.to_owned())
    }
}

async fn open(access: &DonorAccess, ticket: &Ticket) -> Result<OpenedBulk, UpgradeError> {
    let opening = upgrade::open(&SystemNet, &SystemEntropy, &access.addresses, ticket);
    timeout(DEADLINE, opening)
        .await
        .unwrap_or_else(|late| Err(UpgradeError::from(std::io::Error::from(late))))
}

/// Puts a chunk; an error is no answer.
async fn put(opened: &mut OpenedBulk, body: &[u8]) -> Result<BulkStatus, ()> {
    let request = Request::put(ChunkName::of(body), AckLevel::Memory, body.len() as u32);
    let head = request.encode(1, &mut opened.lane);
    opened.io.write(&head, body).await.map_err(drop)?;
    let reply = timeout(DEADLINE, opened.inbox.reply(&mut opened.io)).await.map_err(drop)?;
    Ok(reply.map_err(drop)?.ok_or(())?.1.status)
}
