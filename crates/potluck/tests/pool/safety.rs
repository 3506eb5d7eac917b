//! Reads how safe files are, and waits until they are.

use super::lab::{Cli, Lab};
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;
use std::time::Duration;

impl Cli {
    /// Reads the health of a file as `stat` tells it.
    #[track_caller]
    pub fn health(&self, path: &str) -> Value {
        let stated = self.json(&["stat", path]);
        assert!(stated["health"].is_object(), "no health in {stated}");
        stated["health"].clone()
    }

    /// Returns whether a file has all that its policy promises.
    #[track_caller]
    pub fn is_safe(&self, path: &str) -> bool {
        let health = self.health(path);
        let kept = health["tolerates"].as_u64() >= health["promised"].as_u64();
        health["in_catalog"] == true || health["incomplete"] == 0 && kept
    }

    /// Waits until a file has all that its policy promises, and returns how long that took.
    #[track_caller]
    pub fn wait_safe(&self, path: &str) -> Duration {
        wait_until(&format!("{path} to be safe"), DEADLINE, || self.is_safe(path))
    }

    /// Returns the state of repair, as `potluck repair status` shows it.
    #[track_caller]
    pub fn repair(&self) -> Value {
        self.status()["repair"].clone()
    }

    /// Returns the pool's status of a space.
    #[track_caller]
    pub fn space(&self, name: &str) -> Value {
        let status = self.status();
        let spaces = status["spaces"].as_array().expect("spaces").iter();
        let mut named = spaces.filter(|space| space["name"] == name);
        named.next().unwrap_or_else(|| panic!("no space {name} in {status}")).clone()
    }
}

impl Lab {
    /// Kills donors with SIGKILL.
    pub fn kill_donors(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.kill_donor(name));
    }

    /// Starts donors again, and waits until the pool knows.
    pub fn bring_back(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.start_donor(name));
        names.iter().for_each(|name| self.wait_back(name));
    }
}
