//! Tests the metrics of the manager and of donors, also by a real Prometheus with the alerts and the dashboard that
//! stand in the repository.

use super::content::{arg, file};
use super::lab::Lab;
use super::ports::free_port;
use super::program::Running;
use super::waiting::{DEADLINE, has_program, skip, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns the body of a plain HTTP server's answer, or `None` where it is no answer or not 200.
pub fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// Returns the value of a sample, by its name and labels as they are written.
pub fn value(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(&format!("{sample} ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Returns the path of a file for monitoring.
fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/monitoring").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(contrib(name)).expect("a file of the repository")
}

/// Returns the names of our metrics that a text contains.
fn names(text: &str) -> Vec<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !word(c));
    words.filter(|name| name.starts_with("potluck_")).map(str::to_owned).collect()
}

/// Makes a pool with two donors and one file, and returns the address of its manager's metrics as well.
fn watched() -> (Lab, String) {
    let metrics = format!("127.0.0.1:{}", free_port());
    let often = ["--metrics-listen", &metrics, "--backup-every", "1s"];
    let options = ["--metadata-copies", "1", "--repair-grace", "60s"];
    let lab = Lab::with_options(2, &[&often[..], &options].concat());
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 3, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.cli.ok(&["cat", "pot://lab/f"]);
    (lab, metrics)
}

/// Returns all names that a name of docs/monitoring.md stands for, where `{a,b}` is written for several.
fn spelled(written: &str) -> Vec<String> {
    let Some((before, rest)) = written.split_once('{') else { return vec![written.to_owned()] };
    let (inner, after) = rest.split_once('}').expect("a closing brace");
    match after {
        "" => vec![before.to_owned()], // the braces hold its label
        _ => {
            let all = inner.split(',').map(|part| format!("{before}{part}{after}"));
            all.flat_map(|one| spelled(&one)).collect()
        }
    }
}

#[test]
fn every_figure_is_documented() {
    let (lab, metrics) = watched();
    let doc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring.md");
    let doc = fs::read_to_string(doc).expect("read");
    let written = doc.split('`').filter(|word| word.starts_with("potluck_"));
    let known: Vec<String> = written.flat_map(spelled).collect();
    let mut texts = vec![get(lab.donor_address("donor-1"), "/metrics").expect("a donor answers")];
    wait_until("the manager's figures of a look at everything", DEADLINE, || {
        let text = get(&metrics, "/metrics").unwrap_or_default();
        let all = text.contains("potluck_space_tolerated_losses{");
        texts.push(text);
        all
    });
    for line in texts.last().into_iter().chain(&texts[..1]).flat_map(|text| text.lines()) {
        let Some(about) = line.strip_prefix("# TYPE ") else { continue };
        let (name, kind) = about.split_once(' ').expect("a kind");
        let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        assert!(known.contains(&name), "docs/monitoring.md does not tell of {name}: {known:?}");
    }
    // The verdict is the one of `status`.
    wait_until("the verdict to be told", DEADLINE, || {
        let state = lab.cli.status()["verdict"]["state"].clone();
        let sample = format!("potluck_verdict{{state={state}}}");
        let text = get(&metrics, "/metrics").unwrap_or_default();
        value(&text, &sample) == Some(1.0)
            && value(&text, "potluck_backup_made{op=\"file\"}").is_some()
    });
}

#[test]
fn the_manager_and_donors_tell_figures_that_agree_with_status() {
    let (lab, metrics) = watched();
    let mut text = String::new();
    wait_until("figures of the file and of how safe it is", DEADLINE, || {
        text = get(&metrics, "/metrics").unwrap_or_default();
        value(&text, "potluck_space_tolerated_losses{space=\"lab\"}") == Some(1.0)
            && value(&text, "potluck_backup_age_seconds{op=\"pool\"}").is_some()
    });
    let status = lab.cli.status();
    for (sample, expected) in [
        ("potluck_donors{state=\"live\"}", 2.0),
        ("potluck_space_files{space=\"lab\"}", 1.0),
        ("potluck_space_bytes{space=\"lab\"}", f64::from(1 << 20)),
        ("potluck_space_unreadable_files{space=\"lab\"}", 0.0),
        ("potluck_donor_live{donor=\"donor-1\"}", 1.0),
        ("potluck_gc_frozen", 0.0),
        ("potluck_repair_queued_chunks{redundancy_left=\"0\"}", 0.0),
    ] {
        assert_eq!(value(&text, sample), Some(expected), "{sample} in\n{text}\n{status}");
    }
    let version = status["version"].as_str().expect("a version");
    let build = format!("potluck_build_info{{role=\"manager\",version=\"{version}\"}}");
    assert_eq!(value(&text, &build), Some(1.0), "{text}");
    assert!(value(&text, "potluck_call_seconds_count{op=\"commit\"}") >= Some(1.0), "{text}");
    for secret in ["pot://", "input", arg(lab.dir()), "127.0.0.1"] {
        assert!(!text.contains(secret), "{secret} is nobody's business:\n{text}");
    }

    let served = |donor: &str| {
        let text = get(lab.donor_address(donor), "/metrics").expect("a donor answers");
        assert!(!text.contains(arg(lab.dir())), "{text}");
        assert_eq!(value(&text, "potluck_lent_max_bytes"), Some(f64::from(1 << 30)), "{text}");
        assert!(value(&text, "potluck_bulk_stored_bytes_total") > Some(1e6), "{text}");
        value(&text, "potluck_bulk_served_bytes_total").expect("counted")
    };
    assert!(served("donor-1") + served("donor-2") >= f64::from(1 << 20));
    assert_eq!(get(lab.address(), "/metrics"), None, "the control port tells strangers nothing");
}

#[test]
fn prometheus_alert_fires_when_a_donor_dies() {
    let name = "prometheus_alert_fires_when_a_donor_dies";
    if !has_program("prometheus") {
        return skip(name, "there is no prometheus");
    }
    let (mut lab, metrics) = watched();
    let rules = lab.dir().join("potluck-alerts.yml");
    // The alerts are as documented, except for how long something must last.
    let mut text = read("potluck-alerts.yml");
    for time in ["2m", "5m", "15m"] {
        text = text.replace(&format!("for: {time}\n"), "for: 1s\n");
    }
    fs::write(&rules, text).expect("written");
    let donors = ["donor-1", "donor-2"].map(|donor| format!("\"{}\"", lab.donor_address(donor)));
    let config = read("prometheus.yml")
        .replace("15s", "1s")
        .replace("\"alice:7690\"", &format!("\"{metrics}\""))
        .replace("\"alice:7701\", \"bob:7701\"", &donors.join(", "));
    let config_file = lab.dir().join("prometheus.yml");
    fs::write(&config_file, config).expect("written");
    let web = format!("127.0.0.1:{}", free_port());
    let log = fs::File::create(lab.dir().join("logs/prometheus.txt")).expect("a file");
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config_file.display()))
        .arg(format!("--storage.tsdb.path={}", lab.dir().join("tsdb").display()))
        .arg(format!("--web.listen-address={web}"))
        .stdout(Stdio::null())
        .stderr(log);
    let _prometheus = Running::start(&mut command);
    let ask = |what: &str| -> Value {
        let text = get(&web, &format!("/api/v1/{what}")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    let found = |what: &str| ask(what)["data"]["result"].as_array().map_or(0, Vec::len);
    wait_until("all three to be scraped", DEADLINE * 2, || found("query?query=up==1") == 3);

    // Every metric that the alerts and the dashboard name is there.
    let spoken =
        [read("potluck-alerts.yml"), read("grafana-dashboard.json")].map(|text| names(&text));
    assert!(spoken.iter().all(|names| names.len() > 8));
    for name in spoken.concat() {
        wait_until(&format!("{name} to be told"), DEADLINE, || {
            ask("label/__name__/values")["data"].to_string().contains(&format!("\"{name}\""))
        });
    }
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).expect("JSON");
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expr = target["expr"].as_str().expect("an expression");
            let coded: String = expr.bytes().map(|byte| format!("%{byte:02x}")).collect();
            assert_eq!(ask(&format!("query?query={coded}"))["status"], "success", "{expr}");
        }
    }

    let firing = |alert: &str| {
        let alerts = ask("alerts")["data"]["alerts"].as_array().cloned().unwrap_or_default();
        alerts
            .iter()
            .any(|found| found["labels"]["alertname"] == alert && found["state"] == "firing")
    };
    assert!(!firing("PotluckDonorSilent"));
    lab.kill_donor("donor-1");
    wait_until("the alert of a silent donor", DEADLINE * 2, || firing("PotluckDonorSilent"));
    let alerts = ask("alerts").to_string();
    assert!(alerts.contains("the donor donor-1 is silent"), "{alerts}");
    lab.start_donor("donor-1");
    wait_until("the alert to end", DEADLINE * 2, || !firing("PotluckDonorSilent"));
}

#[test]
fn promtool_finds_no_fault_with_the_alerts() {
    if !has_program("promtool") {
        return skip("promtool_finds_no_fault_with_the_alerts", "there is no promtool");
    }
    for (what, name) in [("rules", "potluck-alerts.yml"), ("config", "prometheus.yml")] {
        let mut promtool = Command::new("promtool");
        let ran = promtool.args(["check", what]).arg(contrib(name)).output().expect("promtool");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{name}: {said}");
    }
}
