//! Tests what the manager does with anything that arrives on its port.

use crate::lab::Lab;
use potluck_wire::control::Status;
use potluck_wire::identity::fingerprint;
use potluck_wire::net::BoxStream;
use potluck_wire::tls::{Dial, TlsDial};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn raw(lab: &Lab) -> BoxStream {
    lab.env.net.connect(&lab.address.to_string()).await.expect("connected")
}

/// Opens a TLS connection without a certificate.
async fn stranger(lab: &Lab) -> BoxStream {
    let dial = TlsDial::joining(fingerprint(&lab.admin_identity().ca));
    dial.secure(raw(lab).await).await.expect("secured")
}

async fn answer(mut stream: BoxStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut text = Vec::new();
    let reading = stream.read_to_end(&mut text);
    let _ = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("no hang");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_costs_its_connection_and_nothing_else_x3() {
    let lab = Lab::new().await;
    for garbage in
        [&b"\0\0\0\0"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 5000], b"\x16\x03\x01\xff\xff"]
    {
        let mut stream = raw(&lab).await;
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest));
        let _ = read.await.expect("closed, not hung");
    }
    for garbage in [
        "\0\0\r\n\r\n",
        "POST /v1/join HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n{]}",
    ] {
        let text = answer(stranger(&lab).await, garbage).await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    lab.admin().call(&Status {}).await.expect("still serving");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stranger_is_dropped_x3() {
    let lab = Lab::new().await;
    let mut silent = raw(&lab).await;
    let mut byte = [0];
    let dropped = tokio::time::timeout(Duration::from_secs(30), silent.read(&mut byte));
    assert!(matches!(dropped.await.expect("dropped in time"), Ok(0) | Err(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_has_no_room_for_a_large_body_x3() {
    let lab = Lab::new().await;
    let head =
        "POST /v1/join HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n";
    let request = format!("{head}{}", "x".repeat(40_000));
    let text = answer(stranger(&lab).await, &request).await;
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_answered_to_anybody() {
    let lab = Lab::new().await;
    for (path, expected) in [("/healthz", "ok"), ("/readyz", "ready")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let text = answer(stranger(&lab).await, &request).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.contains(expected), "{path}: {text}");
    }
    let request = "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(answer(stranger(&lab).await, request).await.contains("POT-E001"));
}

/// Asks for something on a connection, reads the answer, and returns the connection, which is still open.
async fn asked(mut stream: BoxStream) -> BoxStream {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
    let mut answer = [0; 1024];
    let reading = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut answer));
    let n = reading.await.expect("an answer in time").expect("an answer");
    assert!(answer[..n].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..n]));
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn many_strangers_do_not_keep_members_out_x3() {
    let lab = Lab::new().await;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(raw(&lab).await);
        crowd.push(asked(stranger(&lab).await).await);
    }
    for _ in 0..10 {
        lab.admin().call(&Status {}).await.expect("a member is served");
    }
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_s_connection_takes_no_place_of_strangers_x3() {
    let lab = Lab::new().await;
    let dial = TlsDial::member(&lab.admin_identity()).expect("an identity");
    let mut members = Vec::new();
    for _ in 0..200 {
        members.push(asked(dial.secure(raw(&lab).await).await.expect("secured")).await);
    }
    asked(stranger(&lab).await).await;
    lab.admin().call(&Status {}).await.expect("a member is served");
    // The connections that came first are still there.
    for stream in members {
        asked(stream).await;
    }
}
