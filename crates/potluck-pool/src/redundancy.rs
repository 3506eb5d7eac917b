//! What keeps data safe: how safe each file is, what has to be made again and by whom, and what is
//! too much.

mod assess;
mod dispatch;
pub mod excess;
mod judge;
mod layout;
mod leaving;
mod metadata;
mod queue;
mod takers;

pub use assess::{Damaged, Encode, Findings, Job, Lacking, Make, ShardAt, parity_bytes};
pub use dispatch::{Group, Purpose, Repairs};
pub use excess::Excess;
pub use judge::{File, chunk_facts, judge_file, reaches_goal};
pub use layout::{Layout, Piece, Unit, Version, units};
pub use leaving::{Blocked, Moving};
pub use metadata::{Metadata, judge_own_file};
