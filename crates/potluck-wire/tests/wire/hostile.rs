//! Bytes from enemies give an error, never a panic, and never more than their due (promises X2, X3).

use potluck_core::ids::DonorId;
use potluck_wire::bulk::{HEAD_BUFFER, Inbox, SessionKeys, StreamIo};
use potluck_wire::ticket::{PublicTicket, Secret, TicketTime};
use potluck_wire::token::JoinToken;
use proptest::prelude::{any, prop_assert, prop_assert_ne, proptest};
use std::io::Cursor;

fn keys() -> SessionKeys {
    SessionKeys::derive(&Secret::from_bytes([1; 32]), &[2; 16], &[3; 16])
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

proptest! {
    #[test]
    fn no_bytes_of_a_stranger_pass_for_a_frame_x3(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        magic in any::<bool>(),
        early in 0_usize..64,
    ) {
        let mut bytes = bytes;
        if magic && !bytes.is_empty() {
            bytes[0] = 0xB1;
        }
        let early = early.min(bytes.len());
        let (before, after) = bytes.split_at(early);
        let mut io = StreamIo(tokio::io::join(Cursor::new(after.to_vec()), tokio::io::sink()));
        let mut inbox = Inbox::new(keys().client, before).expect("fits");
        let got = runtime().block_on(inbox.request(&mut io));
        prop_assert!(!matches!(got, Ok(Some(_))), "{got:?}");
    }

    #[test]
    fn no_text_is_a_ticket_that_its_bearer_can_use_x2(text in "[A-Za-z0-9_-]{0,600}", now in any::<u64>()) {
        let key = Secret::from_bytes([4; 32]);
        if let Ok(ticket) = text.parse::<PublicTicket>()
            && let Ok(grant) = ticket.grant(&key, DonorId(1), TicketTime { now, void_before: 0 }) {
            // Its bearer would need this secret, and cannot know it.
            prop_assert_ne!(grant.secret, key);
        }
    }

    #[test]
    fn tokens_read_or_refuse(text in ".{0,200}") {
        let _ = text.parse::<JoinToken>();
        let _ = format!("pot1.{text}").parse::<JoinToken>();
    }
}

#[test]
fn an_upgrade_with_too_many_bytes_behind_it_is_refused_x3() {
    assert!(Inbox::new(keys().client, &[0; HEAD_BUFFER + 1]).is_err());
}
