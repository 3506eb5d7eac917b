//! Garbage, truncated and oversized frames, forged tickets and dribble, on both ports.
//! Whatever arrives, the daemons live on and serve.

use super::content::{Lots, arg, assert_same, bytes, file};
use super::lab::Lab;
use super::member::Member;
use super::waiting::{DEADLINE, pause, wait_until};
use potluck_core::chunk::ChunkName;
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::DonorId;
use potluck_core::policy::{AckLevel, Override};
use potluck_wire::bulk::{BulkIo, BulkStatus, Reply, Request};
use potluck_wire::control::{Condition, DonorAccess, Reserve, Reserved};
use potluck_wire::ticket::{Caveat, Ops, Secret, Ticket};
use potluck_wire::tls::{Dial, TlsDial};
use potluck_wire::upgrade::{self, OpenedBulk, UpgradeError};
use rustix::process::Pid;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// No peer that says nothing useful is kept longer (promise X3).
const DROPPED_WITHIN: Duration = Duration::from_secs(30);
/// Strangers at once whose memory is measured: fewer than either port lets in.
const CROWD: u64 = 60;
/// What the port takes of them at once is sent by then.
const SENT_WITHIN: Duration = Duration::from_millis(200);
/// What they sent is read by then; where it is not, it costs less.
const READ_WITHIN: Duration = Duration::from_millis(500);

/// Stores a file and reads it back, so that both ports are seen to work.
#[track_caller]
fn assert_serves(lab: &mut Lab, name: &str) {
    assert!(lab.manager().ended().is_none(), "the manager died of {name}");
    for donor in lab.donor_names() {
        assert!(lab.donor(&donor).ended().is_none(), "{donor} died of {name}");
    }
    let (input, content) = file(lab.dir(), "probe", 12, 300_000);
    let path = format!("pot://lab/{}", name.replace(' ', "-"));
    lab.cli.ok(&["cp", arg(&input), &path]);
    assert_same(&lab.cli.cat(&path), &content, &path);
}

fn hostile_lab() -> Lab {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab
}

/// Reads until the peer closes; the test fails if it takes longer than `limit`.
fn until_closed(mut stream: &TcpStream, limit: Duration) -> Vec<u8> {
    stream.set_read_timeout(Some(limit)).expect("a timeout");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => said,
        Err(why) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&why.kind()) => {
            panic!("the connection was kept for {limit:?}")
        }
        Err(_) => said, // reset is closed, too
    }
}

#[test]
fn garbage_on_either_port_ends_the_connection_and_nothing_else() {
    let mut lab = hostile_lab();
    let addresses = [lab.address().to_owned(), lab.donor_address("donor-1").to_owned()];
    let mut lots = Lots::new("garbage", 12);
    let mut garbage: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"POST /v1/status HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n".to_vec(),
        b"GET /bulk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: potluck-bulk/1\r\n\r\n".to_vec(),
        b"GET /bulk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: potluck-bulk/1\r\npotluck-ticket: AAAA\r\npotluck-nonce: 00\r\n\r\n".to_vec(),
        b"GET /bulk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: potluck-bulk/9\r\n\r\n".to_vec(),
        [b"GET /".as_slice(), &[b'a'; 100_000], b" HTTP/1.1\r\n\r\n"].concat(),
        [b"GET / HTTP/1.1\r\n".as_slice(), &b"x: y\r\n".repeat(20_000), b"\r\n"].concat(),
        // These are a TLS record that says it is longer than any, and a hello cut short.
        vec![0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        vec![0xb1; 5000],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ];
    garbage.extend((0..20).map(|seed| bytes(seed, lots.below(4000) as usize)));
    for address in &addresses {
        for bytes in &garbage {
            let mut stream = TcpStream::connect(address).expect("a port that answers");
            // The peer may hang up while it is being talked to.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            until_closed(&stream, DROPPED_WITHIN);
        }
        // Many connections at once say nothing.
        let crowd: Vec<_> = (0..300).filter_map(|_| TcpStream::connect(address).ok()).collect();
        drop(crowd);
    }
    assert_serves(&mut lab, "garbage");
}

#[test]
fn the_ports_answer_curl() {
    let lab = hostile_lab();
    let mut stream = TcpStream::connect(lab.donor_address("donor-1")).expect("a port that answers");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .expect("sent");
    let said = until_closed(&stream, DROPPED_WITHIN);
    assert!(said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
}

/// A member says after a good handshake what the manager cannot use.
#[test]
fn nonsense_of_a_member_is_answered_and_nothing_else() {
    let mut lab = hostile_lab();
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let post = |name: &str, body: &[u8]| {
        let head = format!(
            "POST /v1/{name} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let deep = "[".repeat(200_000);
    let long = vec![b' '; 900_000];
    let commit = format!(
        r#"{{"session":"{}","batch":0,"files":[{{"path":"pot://lab/x","size":18446744073709551615,"digest":"{}","mtime_ns":0,"chunk_size":0,"copies":4000000000,"pages":["AAAA"],"acknowledged":"AAAA"}}],"done":true}}"#,
        "0".repeat(32),
        "0".repeat(64)
    );
    for (what, request) in [
        ("no JSON", post("status", b"hello")),
        ("not UTF-8", post("status", &[0xff; 100])),
        ("deep JSON", post("status", deep.as_bytes())),
        ("a body that no status call has", post("status", &long)),
        ("a body of a call that it may not make", post("heartbeat", &long)),
        ("another shape", post("reserve", b"[1,2,3]")),
        (
            "huge numbers",
            post("reserve", br#"{"path":"pot://lab/x","bytes":18446744073709551615}"#),
        ),
        ("a negative number", post("reserve", br#"{"path":"pot://lab/x","bytes":-1}"#)),
        (
            "an odd policy",
            post("reserve", br#"{"path":"pot://lab/x","bytes":1,"policy":{"chunk_size":0}}"#),
        ),
        (
            "copies without end",
            post("reserve", br#"{"path":"pot://lab/x","bytes":1,"policy":{"copies":4294967295}}"#),
        ),
        ("a commit of nothing", post("commit", commit.as_bytes())),
        ("no such call", post("format-all-disks", b"{}")),
        ("a donor's call", post("heartbeat", b"{}")),
        (
            "no such path",
            b"GET /etc/passwd HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(),
        ),
        ("a cursor nobody was given", post("list", br#"{"path":"pot://lab","after":"/../../x"}"#)),
    ] {
        let mut stream = admin.stream();
        let said = admin.runtime.block_on(async {
            stream.write_all(&request).await.expect("a manager that reads");
            let mut said = Vec::new();
            let reading = stream.read_to_end(&mut said);
            let read = tokio::time::timeout(DROPPED_WITHIN, reading).await;
            let _ = read.unwrap_or_else(|_| panic!("{what}: no answer"));
            said
        });
        let said = String::from_utf8_lossy(&said).into_owned();
        let refused = said.starts_with("HTTP/1.1 4") || said.starts_with("HTTP/1.1 5");
        let empty_list = what.starts_with("a cursor") && said.starts_with("HTTP/1.1 200");
        assert!(refused || empty_list, "{what}: {said:.300}");
        assert!(!said.starts_with("HTTP/1.1 500"), "{what}: {said:.300}");
    }
    // A sender that still sends when it is refused can send the rest, and read the whole answer.
    let request = post("status", &long);
    let (first, rest) = request.split_at(100_000);
    let mut stream = admin.stream();
    let said = admin.runtime.block_on(async {
        stream.write_all(first).await.expect("a manager that reads");
        stream.flush().await.expect("a manager that reads");
        let mut said = vec![0; 12];
        let answer = tokio::time::timeout(DROPPED_WITHIN, stream.read_exact(&mut said)).await;
        answer.expect("an answer").expect("an answer");
        for piece in rest.chunks(16 << 10) {
            stream.write_all(piece).await.expect("a manager that reads on");
            stream.flush().await.expect("a manager that reads on");
        }
        let read = tokio::time::timeout(DROPPED_WITHIN, stream.read_to_end(&mut said)).await;
        read.expect("an end").expect("no reset");
        said
    });
    assert!(said.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&said));
    // These bodies are promised and never come, or are too long.
    for request in [
        "POST /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
        "POST /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
        "POST /v1/status HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffff0\r\n",
    ] {
        let mut stream = admin.stream();
        admin.runtime.block_on(async {
            let _ = stream.write_all(request.as_bytes()).await; // it may have hung up already
            let _ = stream.shutdown().await;
        });
    }
    // A member that may not make a call is told so before a byte of its body is kept.
    let mut stream = admin.stream();
    let head = "POST /v1/heartbeat HTTP/1.1\r\nhost: x\r\ncontent-length: 90000000\r\n\r\n";
    let mut said = [0; 12];
    let answered = admin.runtime.block_on(async {
        stream.write_all(head.as_bytes()).await.expect("a manager that reads");
        tokio::time::timeout(DROPPED_WITHIN, stream.read_exact(&mut said)).await
    });
    assert!(matches!(answered, Ok(Ok(_))), "{answered:?}");
    assert_eq!(&said, b"HTTP/1.1 403");
    assert_serves(&mut lab, "nonsense");
}

fn reserve(admin: &Member, name: &str, bytes: u64) -> Reserved {
    let path = format!("pot://lab/{name}").parse().expect("a path");
    let (policy, condition) = (Override::default(), Condition::Always);
    admin
        .call(&Reserve {
            path,
            bytes: Some(bytes),
            policy,
            condition,
            interrupted: Default::default(),
            link: None,
        })
        .expect("a session")
}

/// Sends what `say` makes of a bulk connection and gives the donor's answer, or how it hung up.
fn bulk(
    admin: &Member,
    access: &DonorAccess,
    say: impl AsyncFnOnce(&mut OpenedBulk),
) -> Result<Option<(u32, Reply)>, String> {
    let mut opened = admin.open(access);
    admin.runtime.block_on(async {
        say(&mut opened).await;
        let answer = opened.inbox.reply(&mut opened.io);
        let answer = tokio::time::timeout(DROPPED_WITHIN, answer).await;
        answer.expect("an answer or an end within 30 s").map_err(|why| why.to_string())
    })
}

#[test]
fn truncated_forged_and_oversized_frames_end_the_connection() {
    let mut lab = hostile_lab();
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let session = reserve(&admin, "bulk", 1 << 20);
    let access = &session.donors[0];
    let body = bytes(77, 50_000);
    let name = ChunkName::of(&body);
    let put = |len: u32| Request::put(name, AckLevel::Memory, len);
    let closed = |what: &str, answer: Result<Option<(u32, Reply)>, String>| {
        assert!(!matches!(answer, Ok(Some(_))), "{what} was answered: {answer:?}");
    };

    // This put is as it should be, so that the rest of this test can fail.
    let answer = bulk(&admin, access, async |opened| {
        let head = put(body.len() as u32).encode(3, &mut opened.lane);
        opened.io.write(&head, &body).await.expect("sent");
    });
    let (tag, reply) = answer.expect("an answer").expect("an answer");
    assert_eq!((tag, reply.status), (3, BulkStatus::Ok));
    let stored = lab.lent("donor-1").chunks().len();

    closed(
        "a frame of garbage",
        bulk(&admin, access, async |opened| {
            opened.io.write(&bytes(78, 200), &[]).await.expect("sent");
        }),
    );
    closed(
        "half a head",
        bulk(&admin, access, async |opened| {
            let head = put(1000).encode(0, &mut opened.lane);
            opened.io.write(&head[..20], &[]).await.expect("sent");
            opened.io.0.shutdown().await.expect("closed");
        }),
    );
    closed(
        "half a body",
        bulk(&admin, access, async |opened| {
            let head = put(1000).encode(0, &mut opened.lane);
            opened.io.write(&head, &body[..500]).await.expect("sent");
            opened.io.0.shutdown().await.expect("closed");
        }),
    );
    for len in [0, u32::MAX, potluck_core::chunk::MAX_CHUNK + 1] {
        closed(
            "an impossible length",
            bulk(&admin, access, async |opened| {
                let head = put(len).encode(0, &mut opened.lane);
                opened.io.write(&head, &[]).await.expect("sent");
            }),
        );
    }
    closed(
        "an unknown operation",
        bulk(&admin, access, async |opened| {
            let mut head = put(1000).encode(0, &mut opened.lane);
            head[1] = 9;
            opened.io.write(&head, &body[..1000]).await.expect("sent");
        }),
    );
    for at in [2, 4, 9, 20, 50] {
        closed(
            "a changed frame",
            bulk(&admin, access, async |opened| {
                let mut head = put(1000).encode(0, &mut opened.lane);
                head[at] ^= 1;
                opened.io.write(&head, &body[..1000]).await.expect("sent");
            }),
        );
    }
    closed("a frame of another connection", {
        let mut other = admin.open(access);
        let recorded = put(body.len() as u32).encode(0, &mut other.lane);
        bulk(&admin, access, async |opened| {
            opened.io.write(&recorded, &body).await.expect("sent");
        })
    });

    // Bytes that are not the chunk are refused, and the connection goes on.
    let answer = bulk(&admin, access, async |opened| {
        let wrong = bytes(79, 50_000);
        let head = put(50_000).encode(0, &mut opened.lane);
        opened.io.write(&head, &wrong).await.expect("sent");
    });
    let reply = answer.expect("an answer").expect("an answer").1;
    assert_eq!((reply.status, reply.receipt.is_some()), (BulkStatus::Mismatch, false));
    assert_eq!(lab.lent("donor-1").chunks().len(), stored, "nothing of all this was stored");
    wait_until("temporary files to be gone", DEADLINE, || lab.lent("donor-1").temp().is_empty());
    assert_serves(&mut lab, "frames");
}

#[test]
fn tickets_are_kept_to() {
    let mut lab = hostile_lab();
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let session = reserve(&admin, "tickets", 200_000);
    let access = &session.donors[0];
    let refuses = |what: &str, ticket: Ticket| {
        let (net, address) = (&*admin.env.net, &access.addresses);
        let body = bytes(80, 1000);
        admin.runtime.block_on(async {
            let mut opened = match upgrade::open(net, &SystemEntropy, address, &ticket).await {
                Ok(opened) => opened,
                Err(UpgradeError::Refused(status)) => return assert_eq!(status, 403, "{what}"),
                Err(other) => panic!("{what}: {other}"),
            };
            let put = Request::put(ChunkName::of(&body), AckLevel::Memory, 1000);
            let head = put.encode(0, &mut opened.lane);
            opened.io.write(&head, &body).await.expect("sent");
            // A connection that ends is a refusal, too.
            if let Ok(Some((_, reply))) = opened.inbox.reply(&mut opened.io).await {
                assert_eq!(reply.status, BulkStatus::Denied, "{what}");
            }
        });
    };
    let good = access.ticket.clone().expect("a ticket");
    let narrowed = |caveat: Caveat| {
        let mut ticket = good.clone();
        ticket.narrow(&caveat);
        ticket
    };
    refuses(
        "a ticket made up",
        Ticket::issue(
            &Secret::from_bytes([9; 32]),
            &SystemEntropy,
            &[Caveat::Ops(Ops::PUT.and(Ops::GET))],
        ),
    );
    refuses(
        "a known ticket without its secret",
        Ticket { secret: Secret::from_bytes([9; 32]), ..good.clone() },
    );
    refuses("another donor's", narrowed(Caveat::Donor(DonorId(999))));
    refuses("only for reading", narrowed(Caveat::Ops(Ops::GET)));
    refuses("spent", narrowed(Caveat::Bytes(999)));
    refuses("expired", narrowed(Caveat::Expires(0)));
    // Widening is not possible: a caveat that was added cannot be taken away, and the signature of
    // the narrow ticket does not fit the wide one.
    let narrow = narrowed(Caveat::Ops(Ops::GET));
    refuses(
        "a narrow ticket's secret on the wide one",
        Ticket { public: good.public.clone(), secret: narrow.secret },
    );
    assert_eq!(lab.chunk_files(), 0, "nothing was stored");

    // The puts are more bytes than the ticket allows.
    let answers = admin.runtime.block_on(async {
        let (ticket, mut answers) = (narrowed(Caveat::Bytes(200_000)), Vec::new());
        let opening = upgrade::open(&*admin.env.net, &SystemEntropy, &access.addresses, &ticket);
        let mut opened = opening.await.expect("a donor that takes the ticket");
        for tag in 0..6 {
            let body = bytes(90 + u64::from(tag), 60_000);
            let put = Request::put(ChunkName::of(&body), AckLevel::Memory, 60_000);
            let head = put.encode(tag, &mut opened.lane);
            opened.io.write(&head, &body).await.expect("sent");
            let reply = opened.inbox.reply(&mut opened.io).await.expect("an answer");
            answers.push(reply.expect("an answer").1.status);
        }
        answers
    });
    let (ok, denied) = (BulkStatus::Ok, BulkStatus::Denied);
    assert_eq!(answers, [ok, ok, ok, denied, denied, denied], "a ticket for 200 kB");
    assert_serves(&mut lab, "tickets");
}

/// Says one byte a second of `text`, again and again, and gives how long the peer listened.
fn dribble(mut stream: TcpStream, text: &[u8]) -> Duration {
    let started = Instant::now();
    stream.set_nonblocking(true).expect("a socket");
    for byte in text.iter().cycle() {
        if started.elapsed() > DROPPED_WITHIN + Duration::from_secs(5) {
            break;
        }
        let open = stream.write_all(&[*byte]).is_ok();
        // A closed connection reads as its end or as an error other than “nothing yet”.
        let mut said = [0; 4096];
        let heard = stream.read(&mut said);
        let ended =
            matches!(&heard, Ok(0)) || heard.is_err_and(|why| why.kind() != ErrorKind::WouldBlock);
        if !open || ended {
            break;
        }
        pause(Duration::from_secs(1));
    }
    started.elapsed()
}

#[test]
fn peers_of_one_byte_a_second_are_dropped_within_30_s() {
    let mut lab = hostile_lab();
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let session = reserve(&admin, "dribble", 1 << 20);
    let access = session.donors[0].clone();
    let (manager, donor) = (lab.address().to_owned(), lab.donor_address("donor-1").to_owned());
    let connect = |address: &str| TcpStream::connect(address).expect("a port that answers");
    let nobody = TlsDial::joining(potluck_wire::identity::fingerprint(&admin.identity.ca));
    let times: Vec<(&str, Duration)> = std::thread::scope(|scope| {
        let mut dribblers = Vec::new();
        for (what, address, text) in [
            ("TLS hello to the manager", &manager, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0][..]),
            ("nothing sensible to the manager", &manager, b"hello "),
            (
                "HTTP head to the donor",
                &donor,
                b"GET / HTTP/1.1\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
            ),
            ("nothing sensible to the donor", &donor, &[0xb1]),
        ] {
            let stream = connect(address);
            dribblers.push((what, scope.spawn(move || dribble(stream, text))));
        }
        // A silent peer costs no more than one that drips.
        for (what, address) in
            [("silence at the manager", &manager), ("silence at the donor", &donor)]
        {
            let stream = connect(address);
            dribblers.push((
                what,
                scope.spawn(move || {
                    let started = Instant::now();
                    until_closed(&stream, DROPPED_WITHIN);
                    started.elapsed()
                }),
            ));
        }
        // This is a stranger after a good handshake, in the body of its only call.
        let joining = scope.spawn(|| {
            let started = Instant::now();
            admin.runtime.block_on(async {
                let stream = admin.env.net.connect(&manager).await.expect("a connection");
                let mut stream = nobody.secure(stream).await.expect("a handshake");
                let head = b"POST /v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n";
                stream.write_all(head).await.expect("sent");
                let mut said = [0; 4096];
                loop {
                    let heard =
                        tokio::time::timeout(Duration::from_secs(1), stream.read(&mut said));
                    // An answer to the unfinished request counts: it is a refusal.
                    if heard.await.is_ok() || started.elapsed() > 2 * DROPPED_WITHIN {
                        return started.elapsed();
                    }
                    let _ = stream.write_all(b" ").await;
                }
            })
        });
        dribblers.push(("the body of a join", joining));
        // This is a client with a ticket, in the body of a chunk.
        let mut opened = admin.open(&access);
        let runtime = admin.runtime.handle().clone();
        let body = scope.spawn(move || {
            let started = Instant::now();
            runtime.block_on(async {
                let put = Request::put(ChunkName([1; 32]), AckLevel::Memory, 60_000);
                let head = put.encode(0, &mut opened.lane);
                opened.io.write(&head, &[]).await.expect("sent");
                loop {
                    let heard = opened.inbox.reply(&mut opened.io);
                    let heard = tokio::time::timeout(Duration::from_secs(1), heard).await;
                    if heard.is_ok() || started.elapsed() > 2 * DROPPED_WITHIN {
                        return started.elapsed();
                    }
                    let _ = opened.io.write(&[0], &[]).await;
                }
            })
        });
        dribblers.push(("the body of a chunk", body));
        { dribblers }.into_iter().map(|(what, thread)| (what, thread.join().expect(what))).collect()
    });
    println!("{times:#?}");
    for (what, took) in times {
        assert!(took < DROPPED_WITHIN, "{what}: kept for {took:?}");
    }
    assert_serves(&mut lab, "dribble");
}

/// Every command makes connections of its own, to the manager and to the donor.
#[test]
fn strangers_by_the_hundred_fail_none_of_many_commands_at_once() {
    let lab = hostile_lab();
    let (input, content) = file(lab.dir(), "input", 12, 300_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/file"]);
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let nobody = TlsDial::joining(potluck_wire::identity::fingerprint(&admin.identity.ca));
    let mut crowd = Vec::new();
    for address in [lab.address(), lab.donor_address("donor-1")] {
        crowd.extend((0..100).map(|_| TcpStream::connect(address).expect("a port that answers")));
    }
    let asked: Vec<_> = (0..200)
        .map(|_| {
            admin.runtime.block_on(async {
                let stream = admin.env.net.connect(lab.address()).await.expect("a connection");
                let mut stream = nobody.secure(stream).await.expect("a handshake");
                let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
                stream.write_all(request).await.expect("sent");
                let mut said = [0; 1024];
                let read = tokio::time::timeout(DROPPED_WITHIN, stream.read(&mut said)).await;
                assert!(read.expect("an answer").expect("an answer") > 0, "hung up on");
                stream
            })
        })
        .collect();
    std::thread::scope(|scope| {
        let cats: Vec<_> = (0..60).map(|_| scope.spawn(|| lab.cli.cat("pot://lab/file"))).collect();
        for cat in cats {
            assert_same(&cat.join().expect("no command fails"), &content, "pot://lab/file");
        }
    });
    drop((crowd, asked));
}

/// Bytes of memory of its own that a process has.
fn memory(pid: Pid) -> u64 {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a figure");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

/// Promise X3: what strangers send costs at most 64 KiB of memory a connection, however they stop in the middle.
#[test]
fn a_stranger_costs_no_more_than_64_kib_of_memory_x3() {
    let mut lab = hostile_lab();
    assert_serves(&mut lab, "before");
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let nobody = TlsDial::joining(potluck_wire::identity::fingerprint(&admin.identity.ca));
    // This is far more than strangers may send, and less than they say that they do.
    let header = b"POST /v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    let begun = [&header[..], &[b' '; 900_000]].concat();
    let half = |address: &str| {
        admin.runtime.block_on(async {
            let stream = admin.env.net.connect(address).await.expect("a connection");
            let mut stream = nobody.secure(stream).await.expect("a handshake");
            let sent = async {
                stream.write_all(&begun).await?;
                stream.flush().await
            };
            // The manager reads no more than it may: the rest stays on its way, or it has hung up.
            let _ = tokio::time::timeout(SENT_WITHIN, sent).await;
            stream
        })
    };
    let address = lab.address().to_owned();
    let pid = lab.manager().pid();
    // The first strangers have the process load what it needs for any.
    drop((0..CROWD).map(|_| half(&address)).collect::<Vec<_>>());
    pause(READ_WITHIN);
    let before = memory(pid);
    let crowd: Vec<_> = (0..CROWD).map(|_| half(&address)).collect();
    pause(READ_WITHIN);
    let each = memory(pid).saturating_sub(before) / CROWD;
    println!("the manager: {each} bytes for each stranger");
    assert!(each <= 64 << 10, "the manager takes {each} bytes for each stranger");
    drop(crowd);

    let garbage = [&b"GET /v1/bulk HTTP/1.1\r\nhost: x\r\nx-more: "[..], &[b'x'; 7000]].concat();
    let address = lab.donor_address("donor-1").to_owned();
    let stuck = || {
        let mut stream = TcpStream::connect(&address).expect("a port that answers");
        stream.write_all(&garbage).expect("sent");
        stream
    };
    let pid = lab.donor("donor-1").pid();
    drop((0..CROWD).map(|_| stuck()).collect::<Vec<_>>());
    pause(READ_WITHIN);
    let before = memory(pid);
    let crowd: Vec<_> = (0..CROWD).map(|_| stuck()).collect();
    pause(READ_WITHIN);
    let each = memory(pid).saturating_sub(before) / CROWD;
    println!("the donor: {each} bytes for each stranger");
    assert!(each <= 64 << 10, "the donor takes {each} bytes for each stranger");
    drop(crowd);
    assert_serves(&mut lab, "after");
}

#[test]
fn daemon_raises_its_file_limit_and_warns_when_low() {
    let lab = Lab::empty();
    let mut daemon = lab.cli.command();
    // The manager ends at once, for there is nothing at this address.
    daemon.args(["manager", "--state", arg(&lab.manager_dir()), "--listen", "192.0.2.1:1"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 200; ulimit -Hn 300; exec \"$0\" \"$@\""]);
    limited.arg(daemon.get_program()).args(daemon.get_args());
    for (name, value) in daemon.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let ended = limited.output().expect("a shell");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("may have 300 files and connections open"), "{said}");
}

#[test]
fn no_panic_in_any_log() {
    // Every test looks through its logs when its pool is dropped (lab.rs). Here the logs are at
    // their loudest, the peers at their worst, and the look itself is seen to see.
    let mut lab = Lab::empty();
    lab.set_manager_env("POTLUCK_LOG", "debug");
    lab.start_manager();
    let environment = vec![("POTLUCK_LOG".to_owned(), "debug".to_owned())];
    lab.lend("donor-1", super::lab::Lending { environment, ..Default::default() });
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    for address in [lab.address().to_owned(), lab.donor_address("donor-1").to_owned()] {
        for seed in 0..50 {
            let mut stream = TcpStream::connect(&address).expect("a port that answers");
            let _ = stream.write_all(&bytes(seed, 300)); // it may have hung up already
        }
    }
    assert_serves(&mut lab, "panics");
    let logs = lab.logs();
    assert!(logs.iter().any(|(_, text)| text.contains("DEBUG")), "the logs hold what was logged");
    for (path, text) in &logs {
        assert!(!text.contains("panicked"), "{}: {text}", path.display());
    }
    // A panic that is planted in a log is found.
    std::fs::write(lab.dir().join("logs/planted.log"), "thread 'main' panicked at x.rs:1")
        .expect("a log");
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lab)));
    assert!(found.is_err(), "a panic in a log fails the test");
}
