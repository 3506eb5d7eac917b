//! The program that libFuzzer feeds, one decoder a run (`cargo xtask fuzz`).

#![no_main]

use libfuzzer_sys::fuzz_target;
use potluck_fuzz::{Decoder, decoders, words};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Returns the decoder that `POTLUCK_FUZZ` names. With `list` for a name, it prints all names and exits; with
/// `POTLUCK_FUZZ_SEEDS`, it writes the seeds to that directory and their words to a dictionary beside it, and
/// exits.
fn decoder() -> &'static Decoder {
    static CHOSEN: OnceLock<&Decoder> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("POTLUCK_FUZZ").unwrap_or_default();
        if name == "list" {
            decoders().for_each(|decoder| println!("{}", decoder.name));
            std::process::exit(0);
        }
        let found = decoders().find(|known| known.name == name);
        let found = found.expect("POTLUCK_FUZZ names a decoder");
        if let Some(dir) = std::env::var_os("POTLUCK_FUZZ_SEEDS") {
            write_seeds(found, dir.as_ref()).expect("seeds");
            std::process::exit(0);
        }
        found
    })
}

fn write_seeds(decoder: &Decoder, dir: &Path) -> io::Result<()> {
    let seeds = (decoder.seeds)();
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(dir.join(format!("seed-{number}")), seed)?;
    }
    // An empty dictionary would be refused, so it begins with a comment.
    let mut dictionary = "# Words of the seeds.\n".to_owned();
    for word in words(&seeds) {
        let escaped: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        writeln!(dictionary, "\"{escaped}\"").expect("written to memory");
    }
    fs::write(dir.with_extension("dict"), dictionary)
}

fuzz_target!(init: { decoder(); }, |bytes: &[u8]| {
    (decoder().read)(bytes);
});
