//! `potluck give-back SIZE`: an owner takes a part of the lent space back. The command lowers `lend.max` in the
//! donor's settings. The new cap holds at once, and the pool moves what the donor holds beyond it to other
//! donors.

use super::Ending;
use super::drain::{GiveBackPlace, GoesOn, Underway, ending, moving, wait};
use super::lend::absolute;
use super::set::{apply, one_of};
use crate::args;
use crate::keys::{self, Daemon};
use crate::output::Output;
use crate::running;
use crate::settings_file::SettingsFile;
use potluck_client::Pool;
use potluck_core::size::{count, exact_size, format_size, parse_size};
use potluck_wire::control::{Departing, GiveBackStatus, GivingBack};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The bytes lent before and afterwards, and how far the move is.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Less {
    dir: PathBuf,
    /// The most bytes that were lent before.
    lent: u64,
    /// The most bytes that are lent from now on.
    lends: u64,
    /// The bytes that the donor holds.
    held: u64,
    /// The bytes among them that are to move to other donors.
    to_move: u64,
    /// Whether the donor holds no more than it lends now.
    done: bool,
    /// The pool's judgement, made before anything was changed, of whether the move can succeed; `None` if nothing
    /// moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned: Option<GivingBack>,
}

impl Less {
    fn seen(self, held: u64) -> Self {
        let to_move = held.saturating_sub(self.lends);
        Self { held, to_move, done: to_move == 0, ..self }
    }
}

/// Lowers how much this machine's donor lends, whose daemon has its state in `state`, and waits until it holds no more
/// than that.
pub async fn run(
    args: args::GiveBackArgs,
    state: &Path,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let place = GiveBackPlace { donor: None, name: "this machine", cancel: String::new() };
    let file = SettingsFile::read(Daemon::Donor, state)?;
    let wanted = args.dir.as_deref().map(absolute).transpose()?;
    let dir = one_of(&file, wanted.as_deref())?;
    let of = match file.lent().len() {
        1 => String::new(),
        _ => format!(" --dir {}", dir.display()),
    };
    let less = planned(&file, dir, args.size, args.to)?;
    let held = client.call_retrying(&GiveBackStatus { donor: None }).await?.held;
    let mut less = less.seen(held);
    if less.to_move > 0 {
        let look = Departing { donors: Vec::new(), over: Some(less.to_move) };
        less.planned = Some(client.call(&look).await?);
    }
    if args.dry_run {
        output.result(&less, |less| plan(less, "would lend"));
        return Ok(less.planned.as_ref().map_or(Ending::Done, ending));
    }
    let place = GiveBackPlace {
        cancel: format!("potluck set lend.max {}{of}", exact_size(less.lent)),
        ..place
    };
    let key = keys::key("lend.max");
    apply(key, state, args.dir.as_deref(), Some(&exact_size(less.lends)), output).await?;
    if args.no_wait || running::find(state).is_ok_and(|daemon| daemon.is_none()) {
        output.result(&less, |less| plan(less, "lends"));
        return Ok(Ending::Done);
    }
    output.note(&plan(&less, "lends"));
    let first = less.to_move;
    let looked = |back: &GivingBack| {
        let less = less.clone().seen(back.held);
        let (left, lends) = (format_size(less.to_move), format_size(less.lends));
        if less.done {
            return ControlFlow::Break(less);
        }
        let why = back.stuck_why.as_deref().unwrap_or("no other donor takes them");
        let what =
            format!("{left} beyond what this machine lends, {lends}, cannot be moved now: {why}");
        ControlFlow::Continue(Underway {
            given: first.saturating_sub(less.to_move),
            of: first,
            told: format!("{} to move first", count(back.to_move, "chunk")),
            waits_for: format!("{left} move to other donors first"),
            stuck: Some(
                Failure::new(ErrorKind::Partial, code::STUCK, what)
                    .hint("lend more elsewhere (`potluck lend`), and it goes on by itself"),
            ),
        })
    };
    let given = wait(client, GoesOn::new(output, &place), shown, looked).await?;
    output.result(&given, |Less { lends, held, .. }| {
        let (lends, held) = (format_size(*lends), format_size(*held));
        format!("given back; this machine lends {lends} and holds {held}")
    });
    Ok(Ending::Done)
}

/// Works out the bytes that are lent now and those that are to be lent.
fn planned(
    file: &SettingsFile,
    dir: PathBuf,
    by: Option<u64>,
    to: Option<u64>,
) -> Result<Less, Failure> {
    let key = keys::key("lend.max");
    let lent = file.lent_set_to(&dir, key).and_then(|text| parse_size(&text).ok());
    let refused = |what: String, hint: &str| {
        Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint))
    };
    let Some(lent) = lent else {
        let what = format!("how much of {} is lent is not known yet", dir.display());
        return refused(what, "start it first: `potluck lend`");
    };
    let said = format_size(lent);
    let lends = match (by, to) {
        (Some(by), _) if by >= lent => {
            let what = format!("this machine lends {said}, and {} is all of it", format_size(by));
            return refused(what, "`potluck drain` gives all of it back");
        }
        (Some(by), _) => lent - by,
        (None, Some(to)) if to >= lent => {
            let what = format!("this machine lends {said}, which is no more than that");
            return refused(what, "to lend more: `potluck set lend.max`");
        }
        (None, to) => to.unwrap_or(lent),
    };
    if let Err(why) = key.kind.check(&exact_size(lends)) {
        let what = format!("{} would be left to lend: {why}", format_size(lends));
        return refused(what, "`potluck drain` gives all of it back");
    }
    Ok(Less { dir, lent, lends, held: 0, to_move: 0, done: false, planned: None })
}

fn plan(less: &Less, lends: &str) -> String {
    let Less { dir, lent, held, to_move, .. } = less;
    let mut text = format!(
        "this machine {lends} {} of {} instead of {}; it holds {}",
        format_size(less.lends),
        dir.display(),
        format_size(*lent),
        format_size(*held)
    );
    if *to_move > 0 {
        text.push_str(&format!(", of which {} are to leave", format_size(*to_move)));
    }
    if let Some(planned) = &less.planned {
        text.push_str(&format!("\n{}", moving(planned)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lending(max: &str) -> (tempfile::TempDir, SettingsFile) {
        let state = tempfile::tempdir().expect("a directory");
        let edit = |file: &mut SettingsFile| {
            file.lend(Path::new("/srv"));
            file.set_lent(Path::new("/srv"), keys::key("lend.max"), Some(max));
            Ok(())
        };
        let file = SettingsFile::edit(Daemon::Donor, state.path(), edit).expect("written");
        (state, file)
    }

    #[test]
    fn a_part_is_less_than_all_and_leaves_something_to_lend() {
        let (_state, file) = lending("200GiB");
        let ask = |by, to| planned(&file, "/srv".into(), by, to);
        let lends = |by, to| ask(by, to).expect("a part").lends >> 30;
        assert_eq!(lends(Some(50 << 30), None), 150);
        assert_eq!(lends(None, Some(100 << 30)), 100);
        for (by, to, said) in [
            (Some(10 << 40), None, "this machine lends 200.0 GiB, and 10.0 TiB"),
            (Some(200 << 30), None, "this machine lends 200.0 GiB"),
            (Some((200 << 30) - 4096), None, "4.0 KiB would be left to lend"),
            (None, Some(200 << 30), "no more than that"),
        ] {
            let why = ask(by, to).expect_err("refused");
            assert!(why.message.contains(said), "{why:?}");
            assert_eq!(why.kind, ErrorKind::Usage);
        }
    }

    #[test]
    fn give_back_moves_bytes_above_the_new_cap() {
        let (_state, file) = lending("8MiB");
        let less = planned(&file, "/srv".into(), Some(3 << 20), None).expect("a part");
        let roomy = less.clone().seen(5 << 20);
        assert_eq!((roomy.to_move, roomy.done), (0, true));
        let full = less.seen(8 << 20);
        assert_eq!((full.to_move, full.done), (3 << 20, false));
        assert!(plan(&full, "lends").contains("lends 5.0 MiB of /srv instead of 8.0 MiB"));
    }
}
