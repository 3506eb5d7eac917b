//! The number of files and connections that this process may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of open files that is enough for a manager of a thousand donors and two thousand clients.
pub const ENOUGH: u64 = 8192;
/// The number of open files that are kept free for what is no connection: the catalog, chunks, logs.
const FILES: u64 = 128;

/// Raises the limit of open files to the highest that the system lets this process have, and returns the limit. Many
/// systems start programs with 1024, a value that only old programs need.
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If this fails, the limit stays as it is, and that is returned.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    limit()
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the number of connections that fit beside the other files of this process.
pub fn connections() -> usize {
    let limit = limit();
    usize::try_from(limit - FILES.min(limit / 2)).unwrap_or(usize::MAX)
}
