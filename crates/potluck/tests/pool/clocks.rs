//! Tests pools whose wall clocks are days off. A small library between the program and the system shifts them, as
//! libfaketime would; it is compiled here because every machine that builds Potluck has a C compiler, and few have
//! libfaketime.

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::waiting::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t shift(void) { const char *days = getenv("SHIFT_DAYS"); return days ? atol(days) * 86400L : 0; }

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

/// Compiles the shim, and returns its path or the reason why it cannot be compiled.
fn shim(dir: &Path) -> Result<PathBuf, String> {
    let (source, library) = (dir.join("shift.c"), dir.join("shift.so"));
    std::fs::write(&source, SHIM).map_err(|why| why.to_string())?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    match cc.output() {
        Ok(out) if out.status.success() => Ok(library),
        Ok(out) => Err(format!("cc: {}", String::from_utf8_lossy(&out.stderr))),
        Err(why) => Err(format!("cc: {why}")),
    }
}

#[test]
fn clocks_two_days_off_or_at_1970_change_nothing() {
    let mut lab = Lab::empty();
    let library = match shim(lab.dir()) {
        Ok(library) => arg(&library).to_owned(),
        Err(why) => return skip("clocks_two_days_off", &why),
    };
    let shifted = |days: &str| {
        vec![("LD_PRELOAD".to_owned(), library.clone()), ("SHIFT_DAYS".to_owned(), days.to_owned())]
    };
    for (name, value) in shifted("2") {
        lab.set_manager_env(&name, &value);
    }
    lab.start_manager();
    // The clock of a machine without a battery begins at 1970.
    let since_1970 =
        std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_secs() / 86_400;
    let in_1970 = format!("-{}", since_1970 - 1);
    lab.lend("behind", Lending { environment: shifted(&in_1970), ..Lending::default() });
    lab.lend("ahead", Lending { environment: shifted("400"), ..Lending::default() });
    lab.lend("right", Lending::default());
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--copies", "3", "--chunk-size", "64KiB"]);
    let clients = ["-2", "0", "2", &in_1970].map(|days| {
        shifted(days)
            .into_iter()
            .fold(lab.cli.clone(), |cli, (name, value)| cli.with_env(&name, &value))
    });
    for (number, client) in clients.iter().enumerate() {
        let (input, content) = file(lab.dir(), "input", number as u64, 1 << 20);
        let path = format!("pot://lab/{number}");
        client.ok(&["cp", arg(&input), &path]);
        assert_eq!(client.json(&["stat", &path])["live_copies"], 3);
        for reader in &clients {
            assert_same(&reader.cat(&path), &content, &path);
        }
        // Somebody whose clock is wrong can join with a token made by another wrong clock.
        let joiner = client.at_home(&lab.dir().join(format!("joiner-{number}")));
        joiner.ok(&["join", &lab.token("user")]);
        joiner.ok(&["ls"]);
    }
    // While a token is unused, the manager starts again with a right clock, and then with one that is two days behind.
    let token = lab.token("user");
    for days in ["0", "-2"] {
        lab.kill_manager();
        lab.set_manager_env("SHIFT_DAYS", days);
        lab.start_manager();
        lab.wait_live();
        lab.cli.ok(&["cat", "pot://lab/0"]);
        lab.cli.json(&["cp", arg(&lab.dir().join("input")), "pot://lab/later"]);
    }
    let joiner = lab.cli.at_home(&lab.dir().join("late"));
    let ran = joiner.run(&["--json", "join", &token]);
    // The token may be taken, or refused with the code of a token that is not good.
    assert!(ran.code == 0 || (ran.code == 8 && ran.failure().code == "POT-E060"), "{}", ran.stderr);
    let fresh = lab.cli.at_home(&lab.dir().join("fresh"));
    fresh.ok(&["join", &lab.token("user")]);
}

#[test]
fn the_clock_shim_does_shift_so_the_test_can_fail() {
    let lab = Lab::with_donors(1);
    let library = match shim(lab.dir()) {
        Ok(library) => library,
        Err(why) => return skip("the_clock_shim_does_shift_so_the_test_can_fail", &why),
    };
    lab.cli.ok(&["space", "create", "lab"]);
    let shifted = lab.cli.with_env("LD_PRELOAD", arg(&library)).with_env("SHIFT_DAYS", "2");
    let mtime = |path: &str| {
        lab.cli.json(&["stat", path])["entry"]["mtime_ns"].as_i64().expect("a time") / 1_000_000
    };
    // A stream has no time of its own, so it gets the writer's.
    let stdin = || {
        std::process::Stdio::from(
            std::fs::File::open(file(lab.dir(), "i", 1, 10).0).expect("a file"),
        )
    };
    lab.cli.run_with_input(&["cp", "-", "pot://lab/now"], stdin()).ok();
    shifted.run_with_input(&["cp", "-", "pot://lab/shifted"], stdin()).ok();
    let days = (mtime("pot://lab/shifted") - mtime("pot://lab/now")) as f64 / 86_400_000.0;
    assert!((1.9..2.1).contains(&days), "shifted by {days} days");
}
