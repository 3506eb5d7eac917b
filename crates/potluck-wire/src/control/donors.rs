//! What donors report, and what they are asked to do.

use super::{Call, Done, call};
use crate::packed::Packed;
use crate::ticket::Secret;
use potluck_core::budget::DiskState;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::ids::Epoch;
use potluck_core::ids::Incarnation;
use potluck_core::load::Load;
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// A donor reports for duty: at its start, and when the manager asks it to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Register {
    /// This life of the donor.
    pub incarnation: Incarnation,
    /// Shared with the manager alone; signs tickets and receipts. Drawn once, kept with the store.
    pub key: Secret,
    /// Its bulk port, as others may reach it; an unspecified host stands for the address the
    /// manager sees.
    pub address: String,
    /// Its product version.
    pub version: String,
    /// Its disk.
    pub disk: DiskState,
    /// Bytes it may still write.
    pub room: u64,
}
call!(Register => Registered, "register");

/// A donor's orders of the day.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registered {
    /// Its number.
    pub donor: DonorId,
    /// The manager's epoch; a donor refuses lower ones from now on.
    pub epoch: Epoch,
    /// The manager's monotonic milliseconds, against which tickets expire.
    pub now_ms: u64,
}

/// A chunk and its stored length, as a donor lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The chunk.
    pub name: ChunkName,
    /// Stored bytes.
    pub len: u32,
}

impl crate::packed::Record for Holding {
    const SIZE: usize = 36;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name.0);
        out.extend_from_slice(&self.len.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (name, len) = bytes.split_at_checked(32)?;
        Some(Self {
            name: ChunkName(name.try_into().ok()?),
            len: u32::from_le_bytes(len.try_into().ok()?),
        })
    }
}

/// All that a donor holds, in pages of up to [`INVENTORY_PAGE`], after it registered. Chunks that
/// arrive meanwhile are reported by heartbeats as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inventory {
    /// The life that registered.
    pub incarnation: Incarnation,
    /// Counts the pages from 0; page 0 begins anew.
    pub page: u32,
    /// Some of what it holds.
    pub holdings: Packed<Holding>,
    /// Whether this was the last page: what was not listed since page 0 is not there.
    pub last: bool,
}
call!(Inventory => Done, "inventory");

/// Holdings per [`Inventory`] page.
pub const INVENTORY_PAGE: usize = 16_384;

/// A donor's second: its sample, what changed, and in return its orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The life that registered.
    pub incarnation: Incarnation,
    /// Touches so far: every put counts one, also of a chunk that was there. See [`Order::Delete`].
    pub touches: u64,
    /// The last second.
    pub load: Load,
    /// Its disk.
    pub disk: DiskState,
    /// Bytes it may still write.
    pub room: u64,
    /// Chunks stored since the last heartbeat that was answered.
    #[serde(default)]
    pub added: Packed<Holding>,
    /// Chunks deleted, or found missing when ordered to delete them.
    #[serde(default)]
    pub removed: Packed<ChunkName>,
    /// Chunks found spoiled and set aside.
    #[serde(default)]
    pub spoiled: Packed<ChunkName>,
    /// Chunks looked at by order and found sound.
    #[serde(default)]
    pub sound: Packed<ChunkName>,
}
impl Call for Heartbeat {
    const NAME: &'static str = "heartbeat";
    const DEADLINE: Duration = Duration::from_secs(5);
    type Reply = Beat;
}

/// The manager's answer to a heartbeat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Beat {
    /// The manager's epoch.
    pub epoch: Epoch,
    /// The manager's monotonic milliseconds.
    pub now_ms: u64,
    /// The manager does not know this life: register and send the inventory.
    #[serde(default)]
    pub register: bool,
    /// What to do now. Repeated until a heartbeat shows it done. Orders of a newer manager are left
    /// out when they are read.
    #[serde(default, deserialize_with = "known_orders")]
    pub orders: Vec<Order>,
}

/// What the manager asks a donor to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A tombstone: delete the chunk, unless it was touched after `touches`. The manager saw that
    /// count while no session could have been writing the chunk, so a later touch is somebody's
    /// who needs it (PROMISES D5).
    Delete {
        /// Which chunk.
        chunk: ChunkName,
        /// The life that counted.
        incarnation: Incarnation,
        /// The count.
        touches: u64,
    },
    /// Read the chunk and compare it with its name; set it aside if it is spoiled.
    Verify {
        /// Which chunk.
        chunk: ChunkName,
    },
}

fn known_orders<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Order>, D::Error> {
    let orders = Vec::<serde_json::Value>::deserialize(d)?;
    Ok(orders.into_iter().filter_map(|order| serde_json::from_value(order).ok()).collect())
}
