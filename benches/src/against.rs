//! Compares the product with another program that does the same works by turns (`--against`), and says whether it is
//! worse.

use std::time::Duration;

use crate::measure::Cost;
use crate::outcome::Pair;
use crate::report::{Row, Value, median};

/// The most that a work may take, as a multiple of the other program's time: two medians of one program differ as
/// much.
const NO_WORSE: f64 = 1.05;

/// Returns the rows of a work against the other program, if there is one.
pub fn rows(work: &str, pairs: &[Pair]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (measure, of) in
        [("cpu", (|cost| cost.cpu) as fn(&Cost) -> Duration), ("wall", |cost| cost.wall)]
    {
        if let Some(value) = against_other(pairs, of) {
            rows.push(Row::Value(Value {
                work: format!("{}, {measure}, of the other program's", work),
                value,
                unit: "×",
                target: Some(NO_WORSE),
                met: Some(value <= NO_WORSE),
                at_least: false,
            }));
        }
    }
    rows
}

/// Returns the product's cost as a multiple of the other program's, by the ratios of single rounds: the geometric
/// mean of their medians over the rounds in either order. What comes first in a round finds another disk than what
/// comes last, so ratios of both orders together would have two centres, and their median would be near one of
/// them.
fn against_other(pairs: &[Pair], of: fn(&Cost) -> Duration) -> Option<f64> {
    let mut ways = [Vec::new(), Vec::new()];
    for (round, pair) in pairs.iter().enumerate() {
        let other = pair.other.as_ref()?;
        ways[round % 2].push(of(&pair.product).as_secs_f64() / of(other).as_secs_f64());
    }
    let medians: Vec<f64> = ways.into_iter().filter(|way| !way.is_empty()).map(median).collect();
    let product: f64 = medians.iter().product();
    (!medians.is_empty()).then(|| product.powf(1.0 / medians.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_programs_compare_equal_in_any_order_and_number_of_rounds() {
        let cost = |seconds| {
            let time = Duration::from_secs_f64(seconds);
            Cost { wall: time, cpu: time }
        };
        // The program that is last in a round takes twice as long.
        let round = |number| {
            let (product, other) = if number % 2 == 0 { (1.0, 2.0) } else { (2.0, 1.0) };
            Pair { floor: cost(1.0), product: cost(product), other: Some(cost(other)) }
        };
        let pairs: Vec<_> = (0..9).map(round).collect();
        let value = against_other(&pairs, |cost| cost.wall).expect("there is another");
        assert!((value - 1.0).abs() < 1e-9, "{value}");
    }
}
