//! What donors told without proof of managers that this one does not know (promise D5).
//!
//! Whatever a manager of the pool says of its term is proven ([`potluck_recovery::term_proof`]), so that a word
//! without proof is made up, or is a note that a disk spoiled. It changes nothing for anybody. The
//! donor is asked to forget it, and named in an alarm until it does; one that then comes with another such
//! word lies, or its disk does.

use potluck_catalog::Term;
use potluck_core::ids::DonorId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The donors that told of such terms since this manager began.
#[derive(Debug, Default)]
pub struct UnprovenTerms(Mutex<BTreeMap<DonorId, Told>>);

#[derive(Debug)]
struct Told {
    first: Term,
    /// Whether the donor's last registration told of one, too.
    stands: bool,
}

impl UnprovenTerms {
    /// A donor told of a term without proof. Whether it is another one than it told of before.
    pub fn told(&self, donor: DonorId, heard: Term) -> bool {
        let mut told = self.0.lock().expect("no holder panics");
        let before = told.entry(donor).or_insert(Told { first: heard, stands: true });
        before.stands = true;
        before.first != heard
    }

    /// A donor registered without telling of any.
    pub fn ended(&self, donor: DonorId) {
        if let Some(told) = self.0.lock().expect("no holder panics").get_mut(&donor) {
            told.stands = false;
        }
    }

    /// The first such term that a donor told of, if its last registration told of one, too.
    pub fn of(&self, donor: DonorId) -> Option<Term> {
        let told = self.0.lock().expect("no holder panics");
        told.get(&donor).filter(|told| told.stands).map(|told| told.first)
    }
}
