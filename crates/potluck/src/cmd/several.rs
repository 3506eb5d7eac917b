//! The results of a command that names several things: failures of some are told, and the others are done.

use super::Ending;
use crate::output::{Output, count};
use potluck_wire::error::{Failure, code};
use serde::Serialize;
use std::fmt::Display;

/// The outcome of each of several things.
#[derive(Debug, Default, Serialize)]
pub struct Several {
    #[serde(skip)]
    done: usize,
    /// The things that failed, with the reasons.
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Failed {
    path: String,
    error: Failure,
}

impl Several {
    /// Notes the result for one thing.
    pub fn note(&mut self, path: impl Display, result: Result<(), Failure>) {
        match result {
            Ok(()) => self.done += 1,
            Err(error) => self.failed.push(Failed { path: path.to_string(), error }),
        }
    }

    /// Returns how the command ends. The failure of its only thing is its own; of several things, each failure is
    /// told.
    pub fn end(&self, output: &Output) -> Result<Ending, Failure> {
        if let (0, [only]) = (self.done, self.failed.as_slice()) {
            return Err(only.error.clone());
        }
        for failed in &self.failed {
            output.complain_of(&failed.path, &failed.error);
        }
        match (self.done, self.failed.first()) {
            (_, None) => Ok(Ending::Done),
            (0, Some(first)) => {
                let failures = count(self.failed.len() as u64, "path");
                let what = format!("nothing was done with any of the {failures}");
                Err(Failure::new(first.error.kind, code::SOME_FAILED, what)
                    .hint("the reasons are above"))
            }
            _ => Ok(Ending::Partial),
        }
    }
}
