//! How commands wait for what others do: they ask again and again, since nobody calls a command.

use std::time::Duration;

/// The time between two questions to the manager, which learns from donors once a second.
pub const ASK_AGAIN: Duration = Duration::from_millis(500);
