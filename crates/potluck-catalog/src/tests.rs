//! Tests that cannot be made by operations alone: of costs, of damage, and of the modules below the operations. The
//! suite for any engine is in `tests/conformance`.

mod bounds;
mod costs;
mod damage;
mod log;
mod operations;
mod writing;

use crate::operations::checkpoints::publishing::Conditions;
use potluck_wire::control::Condition;

/// Staged files replace others, whatever those are.
const NO_CONDITIONS: Conditions = Conditions { condition: Condition::Always, spare_content: false };
