//! Tests that whatever arrives on the port is bounded, and that the daemon survives it (promise X3).

use crate::pool::{Pool, content};
use potluck_core::chunk::ChunkName;
use potluck_core::entropy::{Entropy, SystemEntropy};
use potluck_core::ids::Epoch;
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{BulkIo, BulkStatus, Request};
use potluck_wire::net::{BoxStream, Net, SystemNet};
use potluck_wire::whereabouts::{Issue, SignedWhereabouts, Whereabouts};
use rcgen::{CertificateParams, KeyPair, SigningKey};
use rustls::pki_types::CertificateDer;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn connect(pool: &Pool) -> BoxStream {
    SystemNet.connect(&pool.address.to_string()).await.expect("connect")
}

/// Sends `text`, and returns what comes back until the donor hangs up.
async fn say(pool: &Pool, text: &[u8]) -> String {
    let mut stream = connect(pool).await;
    let mut answer = Vec::new();
    // The donor may hang up before it has read everything.
    let _ = stream.write_all(text).await;
    let reading = stream.read_to_end(&mut answer);
    let ended = tokio::time::timeout(Duration::from_secs(8), reading).await;
    assert!(ended.is_ok(), "the donor keeps a stranger waiting");
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: donor\r\nconnection: close\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn the_port_answers_health_and_nothing_else() {
    let pool = Pool::start().await;
    let health = say(&pool, &get("/healthz")).await;
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    for path in ["/", "/v1/status", "/../etc/passwd", "/bulk/x", "/chunks/00"] {
        assert!(say(&pool, &get(path)).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(say(&pool, &get("/bulk")).await.starts_with("HTTP/1.1 426"));
    let upgrade =
        b"GET /bulk HTTP/1.1\r\nhost: d\r\nconnection: upgrade\r\nupgrade: potluck-bulk/1\r\n";
    for (extra, status) in [
        ("", "403"),
        ("potluck-ticket: zzz\r\n", "403"),
        ("potluck-ticket: !!\r\npotluck-nonce: 00\r\n", "403"),
        ("content-length: 5\r\n", "400"),
    ] {
        let text = [upgrade, extra.as_bytes(), b"\r\nhello"].concat();
        let answer = say(&pool, &text).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{extra}: {answer}");
    }
}

#[tokio::test]
async fn garbage_and_floods_of_garbage_are_hung_up_on() {
    let pool = Pool::start().await;
    let mut garbage = vec![0; 1 << 20];
    SystemEntropy.fill(&mut garbage);
    say(&pool, &garbage).await;
    say(&pool, &[b'A'; 100_000]).await;
    let endless = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(60_000));
    assert!(!say(&pool, endless.as_bytes()).await.starts_with("HTTP/1.1 200"));
    say(&pool, b"").await; // says nothing at all
    pool.still_serves().await;
}

#[tokio::test]
async fn a_crowd_of_strangers_keeps_no_client_out() {
    let pool = Pool::start().await;
    let mut crowd = Vec::new();
    for _ in 0..600 {
        crowd.push(connect(&pool).await);
    }
    for _ in 0..10 {
        pool.still_serves().await;
    }
    drop(crowd);
}

#[tokio::test]
async fn bad_frames_end_the_connection_and_never_the_donor() {
    let pool = Pool::start().await;
    let mut garbage = vec![0; 5000];
    SystemEntropy.fill(&mut garbage);
    let oversized = [0xB1, 1, 0, 32, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let long_extension = [0xB1, 1, 0, 255];
    for bad in [&garbage[..], &[0xB1; 72], &oversized, &long_extension, &[0; 16]] {
        // Each is sent as the first frame, and after a good one.
        for warm in [false, true] {
            let mut client = pool.client().await;
            if warm {
                assert_eq!(client.put(&content(1, 100), AckLevel::Memory).await, BulkStatus::Ok);
            }
            let _ = client.opened.io.write(bad, &[0; 100]).await;
            let end = tokio::time::timeout(Duration::from_secs(8), client.reply()).await;
            assert!(!matches!(end.expect("hangs up in time"), Ok(Some(_))));
        }
    }
    // This request is signed, and still impossible.
    let mut client = pool.client().await;
    let name = ChunkName::of(b"");
    let huge = Request::put(name, AckLevel::Memory, u32::MAX);
    client.send(huge, &[]).await.expect("sent");
    assert!(!matches!(client.reply().await, Ok(Some(_))));
    pool.still_serves().await;
}

#[tokio::test]
async fn a_peer_that_upgrades_and_says_nothing_is_gone_in_5_seconds() {
    let pool = Pool::start().await;
    let mut silent = pool.client().await;
    let end = tokio::time::timeout(Duration::from_secs(7), silent.reply()).await;
    assert!(!matches!(end.expect("hangs up in time"), Ok(Some(_))));
}

#[tokio::test]
async fn a_body_that_drips_is_given_up_within_30_seconds() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let put = Request::put(ChunkName::of(b"never"), AckLevel::Memory, 1 << 20);
    client.send(put, &[]).await.expect("sent");
    let mut dripped = 0;
    // Writing fails once the donor has hung up and the reset has come back.
    while client.opened.io.write(&[], &[0]).await.is_ok() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        dripped += 1;
        assert!(dripped <= 30, "still waiting");
    }
    assert!(dripped >= 10, "an honest pause is not a drip: {dripped}");
    assert!(pool.place.files("temp").is_empty());
    pool.still_serves().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_given_up_within_30_seconds() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 32 << 20);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    client.send(Request::Get { name, part: None }, &[]).await.expect("sent");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let reply = client.reply().await.expect("what was in flight").expect("the head");
    assert!(client.body(reply.body).await.is_err(), "the donor went on waiting");
}

/// Shows the donor where its manager is, and returns what the donor tells afterwards.
async fn show(pool: &Pool, body: &[u8]) -> String {
    let head = format!(
        "POST /manager HTTP/1.1\r\nhost: d\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    say(pool, &[head.as_bytes(), body].concat()).await
}

#[tokio::test]
async fn donor_trusts_only_signed_whereabouts() {
    let (key, ca) = authority();
    let pool = Pool::led_by(ca).await;
    let said = |key: &KeyPair, moves: u64, at: &str| {
        let issue = Issue { epoch: Epoch(7), moves };
        let said = Whereabouts { issue, addresses: at.parse().expect("addresses") };
        let signed =
            SignedWhereabouts::sign(&said, |text| Ok::<_, rcgen::Error>(vec![key.sign(text)?]))
                .expect("signed");
        serde_json::to_string(&signed).expect("plain data")
    };
    assert!(show(&pool, said(&key, 5, "10.0.0.1:7700").as_bytes()).await.contains("10.0.0.1"));

    let later = said(&key, 6, "10.0.0.2:7700");
    let changed = later.replace("10.0.0.2", "10.0.0.3");
    let unsigned = r#"{"text":"{\"issue\":{\"epoch\":9,\"moves\":0},\"addresses\":[\"10.0.0.4:7700\"]}","signatures":[""]}"#;
    let padded = format!("{later}{}", " ".repeat(1 << 20));
    for (hostile, what) in [
        (said(&key, 5, "10.0.0.5:7700"), "of the same issue"),
        (said(&key, 4, "10.0.0.6:7700"), "stale"),
        (said(&authority().0, 9, "10.0.0.7:7700"), "another authority's"),
        (changed, "changed after it was signed"),
        (unsigned.into(), "unsigned"),
        (padded, "huge"),
        (later[..later.len() / 2].into(), "half"),
        ("[".repeat(4000), "deep"),
        (String::new(), "nothing"),
    ] {
        let told = show(&pool, hostile.as_bytes()).await;
        // A donor may hang up on a sender of too much before the sender has read the answer.
        assert!(
            told.contains("10.0.0.1:7700") || told.is_empty() && what == "huge",
            "{what}: {told}"
        );
    }
    let mut garbage = vec![0; 4000];
    SystemEntropy.fill(&mut garbage);
    assert!(show(&pool, &garbage).await.contains("10.0.0.1:7700"));
    // These are bodies that never come to their end.
    let head = "POST /manager HTTP/1.1\r\nhost: d\r\nconnection: close\r\n";
    for rest in ["content-length: 99999999999\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n5\r\n"]
    {
        let told = say(&pool, format!("{head}{rest}").as_bytes()).await;
        assert!(told.contains("10.0.0.1:7700"), "{rest}: {told}");
    }
    assert!(say(&pool, &get("/manager")).await.contains("10.0.0.1:7700"));
    pool.still_serves().await;
    // The donor still listens to its own manager.
    assert!(show(&pool, later.as_bytes()).await.contains("10.0.0.2:7700"));
}

fn authority() -> (KeyPair, CertificateDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::default().self_signed(&key).expect("a certificate");
    (key, certificate.der().clone())
}
