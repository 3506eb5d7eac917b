//! The operations that the rest of the manager asks of the catalog, on plain types of the domain.
//!
//! An operation makes its change in one transaction, and a query sees one moment, so that no caller sees half of a
//! change. The comment of an operation says so if it works in several transactions or reads pages of several moments.
//! Some operations read before they write, to refuse a name early or to save a turn of the writer: the change is
//! correct whatever happened in between. A closure that is given to an operation may run again.
//!
//! Only the modules beside this one know the engine, the rows and the statements.
//!
//! These are all operations on a running catalog, by the file that they are in:
//!
//! | subject | operations |
//! |---|---|
//! | Names (`names`) | `list_directory` `look_up` `stat` `usage` `make_directory` `make_links` `set_attributes` `rename` `remove` `copy_files` |
//! | Files, as they are read and judged (`files`) | `open_files` `open_leased` `renew_leases` `open_part` `files_of` `files_at` `files_followed` `pathless` |
//! | Kept things that were replaced or removed, and snapshots (`history`) | `kept` `bring_back` `let_go` `take_snapshot` `remove_snapshot` `snapshots` |
//! | Series of steps (`series`) | `all_series` `series` `purge_steps` `note_steps` `note_use` `pin` |
//! | Commits (`commits`) | `commit_files` `judge_parts` `lost_parts` `committed_before` |
//! | Checkpoints (`checkpoints`) | `begin_checkpoint` `commit_checkpoint` `abort_checkpoint` `open_checkpoint` `shared_file` `written_shared_file` `checkpoints` |
//! | Cached files (`caching`) | `evict` |
//! | Write sessions (`sessions`) | `admit_write` `open_session` `grow_session` `end_session` `offer` `look_up_chunks` `keep_unused` |
//! | Spaces and policies (`spaces`) | `create_space` `remove_space` `rekey_space` `content_under_old_keys` `open_old` `spaces` `space` `plan_policy` `set_policy` `follow_defaults` `follow_policy` |
//! | Rights and groups (`grants`) | `rights` `grants` `change_rights` `groups` `edit_group` |
//! | Quotas (`quotas`) | `set_quota` `quotas` |
//! | Members (`members`) | `add_token` `tokens` `remove_token` `join` `add_access_key` `access_keys` `remove_access_key` `revoke` |
//! | Donors and their copies (`donors`) | `note_donor` `note_repair` `compare` `counted_at` `tell` `unlisted_at` `mark_missing` `held_at` `sample` `chunks` `referrers_at` |
//! | Redundancy (`redundancy`) | `set_safe` `arrive` `learn_parity` `mark_excess` |
//! | Garbage (`garbage`) | `unused_chunks` `doubt_in_memory` `condemn` `condemned_chunks` `forget_copies` |
//! | Terms of managers (`terms`) | `authority` `begin_term` `is_unknown_term` `freeze_gc` `end_gc_freeze` |
//! | The metadata log (`log`) | `log_ahead` `note_log` `commit_log` `system_space` `adapt_metadata` `give_up_metadata` |
//! | Upkeep (`upkeep`) | `stats` `in_turn` `sync` `save_time` `upkeep` |

mod caching;
pub(crate) mod checkpoints;
pub(crate) mod commits;
pub(crate) mod donors;
mod files;
mod founding;
mod garbage;
pub(crate) mod grants;
pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod quotas;
pub(crate) mod redundancy;
pub(crate) mod series;
pub(crate) mod sessions;
pub(crate) mod spaces;
mod terms;
pub(crate) mod upkeep;

pub use caching::EvictedPage;
pub use commits::CommittedFiles;
pub use donors::{DonorNote, WrittenDown};
pub use founding::Founding;
pub use grants::GroupEdit;
pub use log::{LogAhead, LogCommitted};
pub use redundancy::Learnt;
pub use sessions::AdmittedWrite;
pub use terms::{TIME_LEAP, TermStart};
pub use upkeep::Upkeep;
