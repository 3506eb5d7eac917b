//! Several things that one command names: what fails of them is told, and the others are done.

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
    /// The things that could not be done, and why.
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Failed {
    path: String,
    error: Failure,
}

impl Several {
    /// Notes what became of one.
    pub fn note(&mut self, path: impl Display, result: Result<(), Failure>) {
        match result {
            Ok(()) => self.done += 1,
            Err(error) => self.failed.push(Failed { path: path.to_string(), error }),
        }
    }

    /// How the command ends: the failure of the only thing it was asked for is its own, and of
    /// several each is told.
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
