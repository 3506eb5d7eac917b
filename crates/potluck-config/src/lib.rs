//! What a user has on this machine: directories, a configuration, and identities in pools. The command line and
//! every other front find them by the same rules.

pub mod checked_toml;
pub mod config_file;
pub mod likeness;
pub mod own_pools;
pub mod setting_kind;
pub mod user_settings;
