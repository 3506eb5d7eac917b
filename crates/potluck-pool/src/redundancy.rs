//! Judges how safe each file is, which chunks have to be made again and by whom, and which copies are too
//! many.

mod assess;
mod dispatch;
mod encodings;
pub mod excess;
mod job;
mod judge;
mod layout;
mod leaving;
mod metadata;
mod queue;
mod repairs;
mod takers;
mod watched;

pub use assess::{Damaged, Findings};
pub use excess::{Excess, Ground, Vote};
pub use job::{CopyToMake, Encode, GroupInCode, Make, RepairJob, ShardAt, parity_bytes};
pub use judge::{JudgedFile, chunk_facts, judge_file, reaches_goal};
pub use layout::{Layout, LayoutChunk, Unit, Version, units};
pub use leaving::{Blocked, Moving};
pub use metadata::{Metadata, judge_own_file};
pub use repairs::{Purpose, Repairs};
pub use watched::{FoundSpace, Remembered};
