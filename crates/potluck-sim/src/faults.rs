//! Begins and ends faults.

use crate::cast::Who;
use crate::disk::Drive;
use crate::disk::trouble::Kind;
use crate::draw::Draw;
use crate::plan::Fault;
use crate::world::{LENT, World};
use potluck_core::policy::AckLevel;
use std::path::Path;

/// The most chunks that one [`Fault::Flip`] spoils.
const FLIPS: u64 = 5;

impl World {
    /// Begins `fault`. Returns `false` if it cannot happen now: another fault is in its way, or nothing is to spoil.
    pub fn begin(&mut self, fault: Fault, ack: AckLevel, victim: u8) -> bool {
        let begun = match fault {
            Fault::Cut(a, b) | Fault::OneWay(a, b) => {
                self.cut(a, b, matches!(fault, Fault::Cut(..)))
            }
            Fault::Kill(who) => self.fell(&[who], None),
            Fault::PowerCut(number) => self.fell(&[Who::Donor(number)], Some(ack)),
            Fault::Blackout => {
                let everybody: Vec<Who> = Who::donors().chain([Who::Manager]).collect();
                self.fell(&everybody, Some(ack))
            }
            Fault::Flip => {
                let most = self.draw.between(1, FLIPS);
                let flipped = flip(&self.drives[usize::from(victim)], &self.draw, most);
                if flipped > 0 {
                    self.stage.board().health.damaged.insert(victim);
                }
                self.stage
                    .trace
                    .say("fault", format_args!("{flipped} chunks of donor-{victim} spoiled"));
                flipped > 0
            }
            Fault::Ruin => {
                for drive in &self.drives {
                    flip(drive, &self.draw, u64::MAX);
                }
                true
            }
            Fault::Fill(number, left) => {
                self.drives[usize::from(number)].fill(Some(left));
                self.stage.board().health.full.insert(number);
                true
            }
            Fault::Lie(number, lie) => {
                self.drives[usize::from(number)].lie(Some(lie));
                if lie.harms() {
                    self.stage.board().health.damaged.insert(number);
                }
                true
            }
            Fault::FillMemory(number) => {
                self.drives[usize::from(number)].fill_memory(true);
                true
            }
            Fault::Stale(number) => {
                self.drives[usize::from(number)].keep_copy();
                true
            }
            Fault::Trouble(number, trouble) => {
                self.drives[usize::from(number)].arm(trouble);
                true
            }
            Fault::Jump(who, by_ms) => {
                self.hosts[&who].jump(by_ms);
                true
            }
        };
        let how = if begun { "begins" } else { "cannot happen now" };
        self.stage.trace.say("fault", format_args!("{fault:?} {how}"));
        self.change();
        begun
    }

    /// Ends a fault that has begun.
    pub fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(a, b) | Fault::OneWay(a, b) => {
                self.sim.repair(a.to_string(), b.to_string());
                self.stage.board().health.cut.remove(&(a, b));
            }
            Fault::Kill(who) => self.rise(&[who]),
            Fault::PowerCut(number) => self.rise(&[Who::Donor(number)]),
            Fault::Blackout => {
                let everybody: Vec<Who> = Who::donors().chain([Who::Manager]).collect();
                self.rise(&everybody);
            }
            Fault::Fill(number, _) => {
                self.drives[usize::from(number)].fill(None);
                self.stage.board().health.full.remove(&number);
            }
            // The disk still counts as damaged, because the lies may have had lasting consequences.
            Fault::Lie(number, lie) => {
                if lie.harms() && self.stage.board().name_liars && !self.names_liar(number) {
                    let who = Who::Donor(number);
                    self.stage.broken("L1", format_args!("nobody names the lies of {who}"));
                }
                self.drives[usize::from(number)].lie(None);
                // A donor that takes its disk for broken accepts no writes until it is restarted.
                self.restart(number);
            }
            Fault::FillMemory(number) => self.drives[usize::from(number)].fill_memory(false),
            Fault::Stale(number) => self.bring_back(number),
            Fault::Trouble(number, trouble) => {
                let changes = self.drives[usize::from(number)].changes();
                self.stage.trace.say("fault", format_args!("{changes} changes of the disk"));
                if trouble.at > 0 {
                    self.restart(number);
                }
            }
            // Spoiled chunks and wrong clocks stay.
            Fault::Flip | Fault::Ruin | Fault::Jump(..) => {}
        }
        self.stage.trace.say("fault", format_args!("{fault:?} ends"));
        self.change();
    }

    /// Takes down the donors whose processes died of trouble with their disks.
    pub fn remove_dead(&mut self) {
        for number in 0..self.drives.len() {
            let Some(kind) = self.drives[number].struck() else { continue };
            let who = Who::Donor(number as u8);
            let power = (kind != Kind::Kill).then_some(AckLevel::Disk);
            self.stage.trace.say("fault", format_args!("{who} died of {kind:?}"));
            self.fell(&[who], power);
            if kind == Kind::LyingSync {
                self.stage.board().health.damaged.insert(number as u8);
            }
            self.change();
        }
    }

    /// Restarts a donor's process. One that is down is started if its disk's trouble may have killed it; otherwise it
    /// stays down until the fault that killed it ends.
    fn restart(&mut self, number: u8) {
        let who = Who::Donor(number);
        if !self.stage.board().health.down.contains(&who) {
            self.kill(who);
            self.start(who);
        } else if self.drives[usize::from(number)].changes() > 0 {
            self.rise(&[who]);
        }
    }

    /// Puts the copy of a donor's disk back in its place, with the donor's process down meanwhile.
    fn bring_back(&mut self, number: u8) {
        let who = Who::Donor(number);
        let down = self.stage.board().health.down.contains(&who);
        if !down {
            self.kill(who);
        }
        self.drives[usize::from(number)].bring_back_copy();
        self.stage.board().health.damaged.insert(number);
        if !down {
            self.start(who);
        }
    }

    fn change(&self) {
        let now = self.now();
        self.stage.board().health.change(now);
    }

    fn cut(&mut self, a: Who, b: Who, both: bool) -> bool {
        {
            let mut board = self.stage.board();
            let cut = &mut board.health.cut;
            if cut.contains(&(a, b)) || cut.contains(&(b, a)) {
                return false;
            }
            cut.insert((a, b));
        }
        let (from, to) = (a.to_string(), b.to_string());
        if both {
            self.sim.partition(from, to)
        } else {
            self.sim.partition_oneway(from, to)
        }
        true
    }

    /// Kills processes. With `power`, donors' machines lose power: their disks lose what was not synced, and their
    /// peers are not told that connections end. Returns `false`, and kills none, if one of them is down already.
    fn fell(&mut self, whom: &[Who], power: Option<AckLevel>) -> bool {
        if whom.iter().any(|who| self.stage.board().health.down.contains(who)) {
            return false;
        }
        for who in whom {
            match (power, who) {
                (Some(ack), Who::Donor(number)) => {
                    self.isolate(*who);
                    self.drives[usize::from(*number)].cut_power(&self.draw);
                    self.kill(*who);
                    self.reconnect(*who);
                    if ack == AckLevel::Memory {
                        self.stage.board().health.damaged.insert(*number);
                    }
                }
                _ => self.kill(*who),
            }
            let now = self.now();
            let mut board = self.stage.board();
            board.health.down.insert(*who);
            for write in board.busy.remove(who).map(|busy| busy.writes).unwrap_or_default() {
                board.health.below_policy = true;
                board.history.give_up(&write, now);
            }
        }
        true
    }

    fn rise(&mut self, whom: &[Who]) {
        for who in whom {
            self.start(*who);
            self.stage.board().health.down.remove(who);
        }
    }

    fn others(who: Who) -> impl Iterator<Item = Who> {
        Who::mortals().chain([Who::Admin]).filter(move |other| *other != who)
    }

    fn isolate(&mut self, who: Who) {
        for other in Self::others(who) {
            self.sim.partition(who.to_string(), other.to_string());
        }
    }

    fn reconnect(&mut self, who: Who) {
        for other in Self::others(who) {
            self.sim.repair(who.to_string(), other.to_string());
        }
        let cut: Vec<(Who, Who)> = self.stage.board().health.cut.iter().copied().collect();
        for (a, b) in cut.into_iter().filter(|(a, b)| *a == who || *b == who) {
            // A link that was cut one way is now cut both ways. That excuses nothing more, because `Health`
            // takes both for the same.
            self.sim.partition(a.to_string(), b.to_string());
        }
    }
}

/// Flips a bit each in up to `most` chunks; returns in how many.
fn flip(drive: &Drive, draw: &Draw, most: u64) -> u64 {
    let mut chunks = drive.files(&Path::new(LENT).join("chunks"));
    let mut flipped = 0;
    while flipped < most && !chunks.is_empty() {
        let (path, bytes) = chunks.swap_remove(draw.below(chunks.len() as u64) as usize);
        flipped += u64::from(drive.flip(&path, draw.below(8 * bytes.len().max(1) as u64)));
    }
    flipped
}
