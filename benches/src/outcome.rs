//! The measurements of a run.

use std::collections::BTreeMap;

use crate::measure::Cost;
use crate::plan::Work;

/// The costs of floor and product in the same round.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub floor: Cost,
    pub product: Cost,
    /// The cost of the program that the product is compared with, if there is one.
    pub other: Option<Cost>,
}

/// A figure that is compared with a fixed limit, or is for information.
pub struct Figure {
    pub work: String,
    pub value: f64,
    pub unit: &'static str,
    pub limit: Limit,
}

/// The limit that a figure must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
    None,
}

#[derive(Default)]
pub struct Outcome {
    pub pairs: BTreeMap<Work, Vec<Pair>>,
    pub figures: Vec<Figure>,
}
