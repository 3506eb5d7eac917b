//! The terms of other managers that donors told of without proof, and that this one does not know (promise D5).
//!
//! A manager of the pool proves all that it says of its term ([`potluck_recovery::term_proof`]), so that a term told
//! without proof is made up, or is a note that a disk spoiled. It freezes nothing. The donor is asked to forget it, and
//! named in an alarm until it does; a donor that then tells of another such term lies, or its disk does.

use potluck_catalog::Term;
use potluck_core::ids::DonorId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The donors that told of terms without proof since this manager started.
#[derive(Debug, Default)]
pub struct UnprovenTerms(Mutex<BTreeMap<DonorId, Told>>);

#[derive(Debug)]
struct Told {
    first: Term,
    /// True if the donor's last registration told of a term without proof, too.
    stands: bool,
}

impl UnprovenTerms {
    /// Notes that a donor told of a term without proof. Returns true if it is another one than the first that the donor
    /// told of.
    pub fn told(&self, donor: DonorId, heard: Term) -> bool {
        let mut told = self.0.lock().expect("no holder panics");
        let before = told.entry(donor).or_insert(Told { first: heard, stands: true });
        before.stands = true;
        before.first != heard
    }

    /// Notes that a donor registered without telling of a term without proof.
    pub fn ended(&self, donor: DonorId) {
        if let Some(told) = self.0.lock().expect("no holder panics").get_mut(&donor) {
            told.stands = false;
        }
    }

    /// Returns the first term without proof that a donor told of, if its last registration told of one, too.
    pub fn of(&self, donor: DonorId) -> Option<Term> {
        let told = self.0.lock().expect("no holder panics");
        told.get(&donor).filter(|told| told.stands).map(|told| told.first)
    }
}
