//! The rules of this machine's owner: read from the settings, and followed while a daemon lends. What they come to is
//! decided in [`potluck_core::owner_rules`].

use crate::local_time::LocalTime;
use crate::output;
use crate::settings_file::SettingsFile;
use potluck_config::setting_kind as kind;
use potluck_core::clock::UnixMillis;
use potluck_core::lend_mode::LendMode;
use potluck_core::owner_rules::{DecidingRule, InForce, OwnerMoment, OwnerRules};
use potluck_core::size::format_size;
use potluck_core::timetable::{Bandwidth, WeekMinute};
use potluck_wire::env::Env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The directory in which Linux shows what supplies the machine with power.
const POWER: &str = "/sys/class/power_supply";
/// The directory that NetworkManager has while it runs.
const NETWORK_MANAGER: &str = "/run/NetworkManager";
/// The time between two questions whether the network is metered, each of which starts a program.
const ASK_EVERY: Duration = Duration::from_mins(1);
/// The time between two looks at the clock: a rule takes effect within it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Returns the rules that the settings of a donor hold, which were checked when they were read.
pub fn rules(file: &SettingsFile) -> OwnerRules {
    let pause = file.text_of("lend.paused").and_then(|text| kind::pause(&text).ok());
    OwnerRules {
        pause: pause.unwrap_or_default(),
        hours: file.parsed("lend.hours").unwrap_or_default(),
        bandwidth: file.parsed("lend.bwlimit").unwrap_or_default(),
        polite_rate: file.size("lend.polite-rate").unwrap_or(u64::MAX),
        on_battery: file.parsed("lend.on-battery").unwrap_or_default(),
        on_metered: file.parsed("lend.on-metered").unwrap_or_default(),
    }
}

/// Returns this moment on this machine, whose network is paid by the byte or not.
pub fn moment(on_metered: bool) -> OwnerMoment {
    let wall_ms = Env::system().clock.wall();
    let local = LocalTime::of(wall_ms).map_or(WeekMinute::new(0, 0, 0), |it| it.week_minute());
    OwnerMoment { wall_ms, local, on_battery: is_on_battery(Path::new(POWER)), on_metered }
}

/// Returns whether a machine whose power supplies are shown in `supplies` runs on its battery: one is being emptied, and
/// no mains or USB supply is there. A battery of a mouse does not count.
fn is_on_battery(supplies: &Path) -> bool {
    let text = |supply: &Path, name: &str| {
        fs::read_to_string(supply.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let supplies = fs::read_dir(supplies).into_iter().flatten().flatten();
    let mut discharging = false;
    for supply in supplies.map(|entry| entry.path()) {
        match text(&supply, "type").as_str() {
            "Battery" if text(&supply, "scope") != "Device" => {
                discharging |= text(&supply, "status") == "Discharging";
            }
            "Mains" | "USB" if text(&supply, "online") == "1" => return false,
            _ => {}
        }
    }
    discharging
}

/// Asks NetworkManager whether the machine's network is paid by the byte, as far as it knows or guesses. Where it does not
/// run the network counts as free: nobody else knows.
pub fn is_metered() -> bool {
    if !Path::new(NETWORK_MANAGER).exists() {
        return false;
    }
    let said = Command::new("busctl")
        .args(["--system", "--timeout=2", "get-property", "org.freedesktop.NetworkManager"])
        .args(["/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager", "Metered"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    said.is_ok_and(|said| says_metered(&String::from_utf8_lossy(&said.stdout)))
}

/// Returns whether an answer of NetworkManager says that the network is paid by the byte. The numbers are those of
/// `NMMetered`: yes, and a guess at yes.
fn says_metered(said: &str) -> bool {
    matches!(said.trim(), "u 1" | "u 3")
}

/// Whether the network was metered at the last look, and the task that looks while a daemon lends.
struct MeteredWatch {
    is_metered: Arc<AtomicBool>,
    looking: JoinHandle<()>,
}

impl MeteredWatch {
    fn new() -> Self {
        let state = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&state);
        let looking = tokio::spawn(async move {
            loop {
                // The answer may take seconds, in which the daemon goes on.
                let said = tokio::task::spawn_blocking(is_metered).await;
                now.store(said.unwrap_or(false), Ordering::Relaxed);
                tokio::time::sleep(ASK_EVERY).await;
            }
        });
        Self { is_metered: state, looking }
    }

    fn is_metered(&self) -> bool {
        self.is_metered.load(Ordering::Relaxed)
    }
}

impl Drop for MeteredWatch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// The owner's rules, and what they came to at the last look.
pub struct OwnerWatch {
    rules: OwnerRules,
    metered: MeteredWatch,
    in_force: InForce,
    next: Instant,
}

impl OwnerWatch {
    /// Begins to follow rules.
    pub fn new(rules: OwnerRules) -> Self {
        let metered = MeteredWatch::new();
        let in_force = rules.in_force(moment(metered.is_metered()));
        Self { rules, metered, in_force, next: Instant::now() + LOOK_EVERY }
    }

    /// Returns what holds, and for how long as far as is known.
    pub fn in_force(&self) -> (InForce, Option<Duration>) {
        let now: UnixMillis = Env::system().clock.wall();
        let left = self.in_force.until_wall_ms.map(|until| until.saturating_sub(now).max(0) as u64);
        (self.in_force, left.map(Duration::from_millis))
    }

    /// Waits until the next look is due.
    pub fn pause(&self) -> impl Future<Output = ()> + use<> {
        tokio::time::sleep_until(self.next)
    }

    /// Goes by other rules from now on; returns whether something else holds now.
    pub fn take(&mut self, rules: OwnerRules) -> bool {
        self.rules = rules;
        self.look()
    }

    /// Looks at the clock and the power supply; returns whether something else holds now.
    pub fn look(&mut self) -> bool {
        self.next = Instant::now() + LOOK_EVERY;
        let now = self.rules.in_force(moment(self.metered.is_metered()));
        let changed = std::mem::replace(&mut self.in_force, now) != now;
        if changed {
            tracing::info!("what the owner wants now: {}", sentence(&now));
        }
        changed
    }
}

/// Says what holds, by which rule, and until when.
pub fn sentence(now: &InForce) -> String {
    let until = now.until_wall_ms.map(|ms| format!(" until {}", output::stated_time(ms)));
    let until = until.unwrap_or_default();
    let by = match now.rule {
        DecidingRule::None => "",
        DecidingRule::Pause if until.is_empty() => " until `potluck resume`",
        DecidingRule::Pause => " (ends earlier by `potluck resume`)",
        DecidingRule::Hours => " (lend.hours)",
        DecidingRule::Battery => " while on battery (lend.on-battery)",
        DecidingRule::Metered => " while the network is paid by the byte (lend.on-metered)",
    };
    let rate = |rate: Option<u64>, way: &str| {
        rate.map(|rate| format!("{way} at most {}/s", format_size(rate)))
    };
    let Bandwidth { up, down } = now.bandwidth;
    let rates = [rate(up, "sends"), rate(down, "receives")];
    let rates = rates.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    match (now.mode, rates.as_str()) {
        (LendMode::Off, _) if now.rule == DecidingRule::Pause => format!("paused{until}{by}"),
        (LendMode::Off, _) => format!("off{until}{by}"),
        (LendMode::Full, "") => format!("full{until}"),
        (LendMode::Full, rates) => format!("{rates}{until} (lend.bwlimit)"),
        (LendMode::Polite, rates) => {
            format!("polite{until}{by}: {rates}, and repair puts nothing here")
        }
        (LendMode::Reads, rates) => format!("read from only{until}{by}: {rates}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_metered_where_it_is_known_or_guessed() {
        assert!(says_metered("u 1\n") && says_metered("u 3\n"));
        for other in ["u 0\n", "u 2\n", "u 4\n", "", "Failed to get property"] {
            assert!(!says_metered(other), "{other}");
        }
    }

    #[test]
    fn a_battery_counts_while_nothing_charges_it() {
        let supplies = tempfile::tempdir().expect("a directory");
        let supply = |name: &str, files: &[(&str, &str)]| {
            let dir = supplies.path().join(name);
            fs::create_dir_all(&dir).expect("made");
            files.iter().for_each(|(file, text)| fs::write(dir.join(file), text).expect("written"));
        };
        let on_battery = || is_on_battery(supplies.path());
        assert!(!on_battery(), "a machine without batteries");
        supply(
            "mouse",
            &[("type", "Battery\n"), ("scope", "Device\n"), ("status", "Discharging\n")],
        );
        assert!(!on_battery(), "a mouse");
        supply("BAT0", &[("type", "Battery\n"), ("status", "Discharging\n")]);
        supply("AC", &[("type", "Mains\n"), ("online", "0\n")]);
        assert!(on_battery());
        supply("AC", &[("online", "1\n")]);
        assert!(!on_battery(), "plugged in");
        supply("AC", &[("online", "0\n")]);
        supply("BAT0", &[("status", "Not charging\n")]);
        assert!(!on_battery(), "a full one that is held");
        assert!(!is_on_battery(Path::new("/nowhere")));
    }
}
