//! The records that the pool keeps of itself: spaces, donors, write sessions, terms.

pub(crate) mod donor_traffic;
pub(crate) mod donors;
pub(crate) mod logged_reservation;
pub(crate) mod meta;
pub(crate) mod notes;
pub(crate) mod old_keys;
pub(crate) mod reservations;
pub(crate) mod sessions;
pub(crate) mod space_keys;
pub(crate) mod spaces;
pub(crate) mod stored_donor;
pub(crate) mod term_history;
