//! Every decoder of what comes over a socket or from a disk, one of them a run (`cargo xtask fuzz`).
//!
//! A decoder must read or refuse any bytes, without a panic and without more memory than its input deserves; what it
//! reads must be written and read again as the same. Where bytes are authenticated before they are read, the
//! proof is made here, so that the decoder behind it is reached.

#![no_main]

mod control;
mod formats;
mod frames;
mod seeds;
mod texts;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

type Decoder = fn(&[u8]);

/// The decoders by their names.
const DECODERS: [(&str, Decoder); 18] = [
    ("frame-request", frames::request),
    ("frame-reply", frames::reply),
    ("frame-unsigned", frames::unsigned),
    ("ticket", texts::ticket),
    ("token", texts::token),
    ("addresses", texts::addresses),
    ("path", texts::path),
    ("policy-text", texts::policy),
    ("control-of-users", control::of_users),
    ("control-of-donors", control::of_donors),
    ("control-replies", control::replies),
    ("whereabouts", control::whereabouts),
    ("join-request", control::join_request),
    ("recipe-page", formats::recipe_page),
    ("sealed", formats::sealed),
    ("segment-proof", formats::segment_proof),
    ("log-block", formats::log_block),
    ("donor-files", formats::donor_files),
];

/// The decoder that `POTLUCK_FUZZ` names. With `list` for a name, says which there are; with `seeds`, writes what
/// encoders make to the directories that it is given by name.
fn decoder() -> Decoder {
    static CHOSEN: OnceLock<Decoder> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("POTLUCK_FUZZ").unwrap_or_default();
        if name == "list" {
            DECODERS.iter().for_each(|(name, _)| println!("{name}"));
            std::process::exit(0);
        }
        if let Some(dir) = std::env::var_os("POTLUCK_FUZZ_SEEDS") {
            seeds::write(&name, dir.as_ref()).expect("seeds");
            std::process::exit(0);
        }
        let found = DECODERS.iter().find(|(known, _)| *known == name);
        found.expect("POTLUCK_FUZZ names a decoder").1
    })
}

fuzz_target!(init: { decoder(); }, |bytes: &[u8]| decoder()(bytes));
