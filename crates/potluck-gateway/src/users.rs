//! The users on whose behalf a gateway acts, by the access keys that requests name.
//!
//! A key is asked of the manager when a request names it, and remembered for a while so that its signature can be
//! checked without another call. That a key ended is noticed by the manager at once, whatever is remembered here.

use potluck_client::Pool;
use potluck_wire::control::{AccessKeyShow, AccessKeyShown};
use potluck_wire::error::Failure;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The time for which a key is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The most keys that are remembered; when there are more, all are asked again.
const MOST_KEYS: usize = 4096;
/// The longest identifier of a key that is asked for, in bytes.
const LONGEST_ID: usize = 128;

/// A user on whose behalf the gateway acts.
#[derive(Clone)]
pub struct User {
    /// The secret that the user signs requests with, or shows as a password.
    pub secret: Arc<str>,
    /// The pool as the user's access key shows it.
    pub pool: Pool,
}

/// The users whose keys were shown lately.
pub struct Users {
    /// The pool, of which the gateway itself is a member.
    pool: Pool,
    known: Mutex<HashMap<String, KnownUser>>,
}

struct KnownUser {
    user: User,
    asked: Duration,
}

impl Users {
    /// Makes an empty list for a gateway that is a member of `pool`.
    pub fn new(pool: Pool) -> Self {
        Self { pool, known: Mutex::default() }
    }

    /// Returns the user of a key.
    ///
    /// Errors: [`code::BAD_KEY`](potluck_wire::error::code::BAD_KEY) for a key that never was or has ended, and those
    /// of [`Pool::call`].
    pub async fn of_key(&self, id: &str) -> Result<User, Failure> {
        let now = self.pool.now();
        if let Some(known) = self.known.lock().expect("no holder panics").get(id)
            && now.saturating_sub(known.asked) < REMEMBERED
        {
            return Ok(known.user.clone());
        }
        let asked = AccessKeyShow { id: id.chars().take(LONGEST_ID).collect() };
        let AccessKeyShown { secret, .. } = self.pool.call(&asked).await?;
        let mut known = self.known.lock().expect("no holder panics");
        if known.len() >= MOST_KEYS {
            known.clear();
        }
        // The handle stays the same while its user does, so that all its requests share memory and leases.
        let pool = known.get(id).map_or_else(|| self.pool.on_behalf(id), |it| it.user.pool.clone());
        let user = User { secret: secret.into(), pool };
        known.insert(id.into(), KnownUser { user: user.clone(), asked: now });
        Ok(user)
    }

    /// Tells the manager what the pool handles of all users leave to be told.
    pub async fn settle(&self) {
        let known: Vec<Pool> = {
            let known = self.known.lock().expect("no holder panics");
            known.values().map(|known| known.user.pool.clone()).collect()
        };
        for pool in known {
            pool.settle().await;
        }
        self.pool.settle().await;
    }
}
