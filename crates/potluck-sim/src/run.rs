//! Plays one scenario from beginning to end.

use crate::checks::RECOVERY;
use crate::host::Host;
use crate::plan::{Event, Plan};
use crate::safety::HEALED;
use crate::trace::Trace;
use crate::world::World;
use potluck_core::chunk::Digest;
use potluck_wire::control::DonorState;
use std::time::Duration;

/// The time within which all machines have joined.
const SETUP: Duration = Duration::from_secs(60);
/// The time within which every script is done, and later every file is read.
const SHOW: Duration = Duration::from_secs(600);
/// The time from one note of disks and sent bytes in the trace to the next.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The plan that was played, as text.
    pub options: String,
    /// The trace: a line for each event, in order.
    pub trace: String,
    /// The digest of the trace.
    pub hash: Digest,
    /// The simulated time that the run took.
    pub took: Duration,
    /// Success, or the first broken promise.
    pub result: Result<(), String>,
}

/// Plays a scenario. Nothing else may run on the calling thread.
pub fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan);
    let trace = world.stage.trace.clone();
    let mut show = Show { world: &mut world, plan, trace: trace.clone(), noted: Duration::ZERO };
    let result = show.go();
    trace.say(
        "end",
        result.as_ref().map_or_else(String::clone, |()| "every promise was kept".into()),
    );
    let took = world.now();
    Outcome { options: plan.to_string(), trace: trace.lines(), hash: trace.hash(), took, result }
}

struct Show<'w> {
    world: &'w mut World,
    plan: &'w Plan,
    trace: Trace,
    noted: Duration,
}

impl Show<'_> {
    fn go(&mut self) -> Result<(), String> {
        self.until("everybody joins", SETUP, |world| world.everybody_is_there())?;
        self.world.hosts.values().for_each(Host::forget_sent);
        self.perform()?;
        self.trace.say("driver", "everything is healed");
        self.wait(RECOVERY)?;
        self.until("the pool is live", RECOVERY, |world| world.everybody_is_there())?;
        self.world.ask_for_everything();
        self.until("everything is read", SHOW, |world| {
            world.idle().then_some(()).ok_or_else(String::new)
        })?;
        self.world.ask_for_recipes();
        self.until("every recipe is known", SHOW, |world| {
            world.idle().then_some(()).ok_or_else(String::new)
        })?;
        self.world.check_races()?;
        if !self.plan.until_clean {
            return self.world.check_copies(self.plan.redundancy);
        }
        self.until("the pool is clean", World::clean_within(), |world| match world.unsettled() {
            Some(why) => Err(why),
            None => Ok(()),
        })?;
        self.world.check_copies(self.plan.redundancy)?;
        self.world.ask_for_healing();
        self.until("everything is safe", HEALED, |world| {
            match world.danger(self.plan.redundancy).or_else(|| world.unsettled()) {
                Some(why) => Err(why),
                None => Ok(()),
            }
        })
    }

    /// Plays the scripts and the faults.
    fn perform(&mut self) -> Result<(), String> {
        let begun = self.world.now();
        {
            let mut board = self.world.stage.board();
            board.curtain = Some(begun);
            board.scripts =
                self.plan.scripts.iter().map(|script| script.iter().cloned().collect()).collect();
        }
        let mut coming = self.plan.faults.iter().peekable();
        let mut going: Vec<&Event> = Vec::new();
        while coming.peek().is_some() || !going.is_empty() || !self.world.idle() {
            let now = self.world.now() - begun;
            if now > SHOW {
                return Err("A2 is broken: the clients don't come to an end".into());
            }
            let (over, rest): (Vec<_>, Vec<_>) =
                going.into_iter().partition(|event| event.at + event.lasts <= now);
            going = rest;
            over.into_iter().for_each(|event| self.world.end(event.fault));
            while let Some(event) = coming.next_if(|event| event.at <= now) {
                if self.world.begin(event.fault, self.plan.ack, self.plan.victim) {
                    going.push(event);
                }
            }
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.world.step()?;
        self.world.remove_dead();
        if self.world.now() >= self.noted + NOTE_EVERY {
            self.noted = self.world.now();
            self.world.note();
        }
        self.world.check_now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), String> {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.step()?;
        }
        Ok(())
    }

    fn until(
        &mut self,
        what: &str,
        most: Duration,
        done: impl Fn(&World) -> Result<(), String>,
    ) -> Result<(), String> {
        let end = self.world.now() + most;
        loop {
            match done(self.world) {
                Ok(()) => break,
                Err(why) if self.world.now() >= end => {
                    return Err(format!(
                        "liveness is broken: {what} takes longer than {most:?}: {why}"
                    ));
                }
                Err(_) => {}
            }
            // Some conditions read whole disks, which would be slow at each tick.
            self.wait(Duration::from_millis(200))?;
        }
        self.trace.say("driver", format_args!("{what}: done"));
        Ok(())
    }
}

impl World {
    /// Checks that the manager hears all donors and that all other machines have joined.
    fn everybody_is_there(&self) -> Result<(), String> {
        let board = self.stage.board();
        let status = board.status.as_ref().ok_or("the manager does not answer")?;
        let live = status.donors.iter().filter(|donor| donor.state == DonorState::Live).count();
        if live < self.drives.len() {
            return Err(format!("{live} donors are live"));
        }
        match self
            .hosts
            .values()
            .find(|host| host.who != crate::cast::Who::Manager && !host.is_member())
        {
            Some(host) => Err(format!("{} has not joined", host.who)),
            None => Ok(()),
        }
    }

    /// Writes the sent bytes and the digests of the disks to the trace, so that any difference between two runs
    /// shows.
    fn note(&self) {
        if self.stage.board().curtain.is_none() {
            return;
        }
        let sent: Vec<_> = self.hosts.values().map(|host| (host.who, host.sent())).collect();
        for (who, bytes) in sent.into_iter().filter(|(_, bytes)| *bytes > 0) {
            self.stage.trace.say(who, format_args!("sent {bytes} bytes"));
        }
        for (number, drive) in self.drives.iter().enumerate() {
            self.stage
                .trace
                .say(format_args!("donor-{number}"), format_args!("disk {}", drive.history()));
        }
    }
}
