//! Judges which receipts count: those that the donor's registered incarnation made.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::{Incarnation, SessionId};
use potluck_core::policy::AckLevel;
use potluck_wire::ticket::{Receipt, Secret};

/// The key and the incarnation of a donor's receipts that count: receipts under another key, or of an earlier
/// incarnation, do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptSigner {
    /// The key, drawn by the donor, under which it makes its receipts.
    pub key: Secret,
    /// The donor's registered incarnation.
    pub incarnation: Incarnation,
}

/// The judgement of a receipt: whether it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptJudgement {
    /// The receipt counts: the donor gave it since it was started.
    Counts,
    /// The donor gave the receipt before it was started again, so that what it stored may be lost.
    OfEarlierIncarnation,
    /// The donor did not give the receipt, or gave it for something else.
    False,
}

impl ReceiptSigner {
    /// Judges a receipt that is to stand for `len` stored bytes called `name`.
    ///
    /// An incarnation that is not the registered one is an earlier one: donors store nothing for anybody before the
    /// manager has registered them.
    pub fn judge(
        &self,
        receipt: &Receipt,
        session: &SessionId,
        (name, len): (&ChunkName, u32),
        ack: AckLevel,
    ) -> ReceiptJudgement {
        let genuine = Receipt::issue(&self.key, receipt.incarnation, session, name, len, ack);
        match *receipt == genuine {
            false => ReceiptJudgement::False,
            true if receipt.incarnation == self.incarnation => ReceiptJudgement::Counts,
            true => ReceiptJudgement::OfEarlierIncarnation,
        }
    }
}
