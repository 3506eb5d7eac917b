//! Puts that a donor forwards to other donors, and the receipts of these.

use super::MAX_ROUTES;
use crate::ticket::Receipt;
use potluck_core::chunk::ChunkKind;

/// The donors that a donor forwards a put to: server-driven mirroring (docs/papers.md, CEFT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forward {
    /// True if the answer waits for the copies, and carries their receipts in the order of the routes, with zeros for a
    /// copy that failed. Otherwise the copies are made after the answer.
    pub wait: bool,
    count: u8,
    routes: [u8; MAX_ROUTES],
}

impl Forward {
    /// The value for a put that is forwarded to nobody.
    pub const NONE: Self = Self { wait: false, count: 0, routes: [0; MAX_ROUTES] };

    /// Makes the value for a put that is forwarded to the donors of these routes; `None` for more than [`MAX_ROUTES`].
    pub fn to(routes: &[u8], wait: bool) -> Option<Self> {
        let mut forward = Self { wait, count: routes.len() as u8, routes: [0; MAX_ROUTES] };
        forward.routes.get_mut(..routes.len())?.copy_from_slice(routes);
        Some(forward)
    }

    /// Returns the numbers of the routes.
    pub fn routes(&self) -> &[u8] {
        &self.routes[..self.count.into()]
    }
}

/// Encodes a put's extension after the name, which is empty for data that is forwarded to nobody: kind, mode (0 no
/// forward, 1 forward and wait, 2 forward later), number of routes, routes, zero.
pub(super) fn encode_extra(kind: ChunkKind, forward: &Forward) -> Vec<u8> {
    if kind == ChunkKind::Data && forward.count == 0 {
        return Vec::new();
    }
    let mode = match (forward.count, forward.wait) {
        (0, _) => 0,
        (_, true) => 1,
        (_, false) => 2,
    };
    let mut extra = vec![kind.byte(), mode, forward.count];
    extra.extend_from_slice(&forward.routes);
    extra.push(0);
    extra
}

pub(super) fn decode_extra(extra: &[u8]) -> Option<(ChunkKind, Forward)> {
    match *extra {
        [] => Some((ChunkKind::Data, Forward::NONE)),
        [kind, mode, count, a, b, c, d, 0] => {
            let kind = ChunkKind::from_byte(kind)?;
            let routes = [a, b, c, d];
            let used = routes.get(..count.into())?;
            match mode {
                0 if count == 0 => Some((kind, Forward::NONE)),
                1 | 2 if count > 0 => Some((kind, Forward::to(used, mode == 1)?)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The bytes that stand for a copy that was not made, in the place of its receipt.
const NONE: [u8; Receipt::SIZE] = [0; Receipt::SIZE];

/// The receipts of the donors that a put was forwarded to, in the order of its routes. The list is empty where copies
/// are to be made later, unless the donor did not take them on: then all are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forwarded {
    count: u8,
    receipts: [[u8; Receipt::SIZE]; MAX_ROUTES],
}

impl Forwarded {
    /// Makes the list from the receipts, with `None` for copies that were not made; at most [`MAX_ROUTES`].
    pub fn of(receipts: &[Option<Receipt>]) -> Self {
        let mut forwarded = Self { count: receipts.len() as u8, ..Self::default() };
        for (place, receipt) in forwarded.receipts.iter_mut().zip(receipts) {
            *place = receipt.map_or(NONE, Receipt::to_bytes);
        }
        forwarded
    }

    /// Returns the receipts; `None` for copies that were not made.
    pub fn receipts(&self) -> impl Iterator<Item = Option<Receipt>> + '_ {
        let made = |receipt: &[u8; Receipt::SIZE]| {
            (*receipt != NONE).then(|| Receipt::from_bytes(receipt))
        };
        self.receipts[..self.count.into()].iter().map(made)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.receipts[..self.count.into()].as_flattened()
    }

    pub(super) fn from_bytes(receipts: &[[u8; Receipt::SIZE]]) -> Option<Self> {
        let mut forwarded = Self { count: receipts.len() as u8, ..Self::default() };
        forwarded.receipts.get_mut(..receipts.len())?.copy_from_slice(receipts);
        Some(forwarded)
    }
}
