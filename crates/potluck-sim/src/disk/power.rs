//! The state of a disk after a power cut.

use super::{Drive, Inode, Node, Tree, lock, parent};
use crate::draw::Draw;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

impl Drive {
    /// Syncs everything, as operating systems do by themselves within a minute.
    pub fn write_back(&self) {
        let mut state = self.state();
        for node in state.seen.values() {
            if let Node::File(inode) = node {
                let mut inode = lock(inode);
                inode.synced = inode.bytes.len();
            }
        }
        state.durable = state.seen.clone();
    }

    /// Cuts the power. Each change of a name that was not synced is either kept or undone. Of bytes that were
    /// not synced all are kept, or a first part, or zeros are in their place.
    pub fn cut_power(&self, draw: &Draw) {
        self.kill();
        let mut state = self.state();
        let names: BTreeSet<PathBuf> =
            state.seen.keys().chain(state.durable.keys()).cloned().collect();
        let mut left = Tree::new();
        for path in names {
            let (seen, durable) = (state.seen.get(&path), state.durable.get(&path));
            let settled = matches!((seen, durable), (Some(a), Some(b)) if a.is_same(b));
            let node = if settled || draw.chance(50) { seen } else { durable };
            // The root is its own parent.
            let reachable = parent(&path) == path || left.contains_key(parent(&path));
            if let Some(node) = node.filter(|_| reachable) {
                left.insert(path, survivor(node, draw));
            }
        }
        state.durable = left.clone();
        state.show(left);
    }
}

/// Returns a node as a power cut leaves it, all of it synced.
fn survivor(node: &Node, draw: &Draw) -> Node {
    let Node::File(inode) = node else { return Node::Dir };
    let inode = lock(inode);
    let (whole, synced) = (inode.bytes.len(), inode.synced);
    let mut bytes = inode.bytes.clone();
    if synced < whole {
        match draw.below(3) {
            // A file's length may be recorded before its bytes are.
            0 => bytes[synced..].fill(0),
            1 => bytes.truncate(synced + draw.below((whole - synced) as u64) as usize),
            _ => {}
        }
    }
    let synced = bytes.len();
    Node::File(Arc::new(Mutex::new(Inode { bytes, synced, named: false })))
}
