//! What donors told of other managers' terms since this manager began (promise D5).
//!
//! The first such word of a donor is believed, for it may be the only one that met the other manager.
//! It has heard of this one's epoch since, which is above that of the term it told of. So another
//! word of it means that other managers go on beside this one, and then other donors have met them,
//! too. Where none has, it makes them up: each word that is believed has all donors register again,
//! and every copy of the metadata log begin anew.

use potluck_catalog::term_history::Term;
use potluck_core::ids::{DonorId, Epoch};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The last foreign term that each donor told of and was believed.
#[derive(Debug, Default)]
pub struct ForeignTerms(Mutex<BTreeMap<DonorId, (Epoch, u64)>>);

impl ForeignTerms {
    /// Hears a donor tell of a term that is not this manager's. Whether it is to be believed.
    pub fn believes(&self, donor: DonorId, heard: Term) -> bool {
        let term = (heard.epoch, heard.start);
        let mut told = self.0.lock().expect("no holder panics");
        let others_too = || told.iter().any(|(other, said)| *other != donor && *said == term);
        let believed = told.get(&donor).is_none_or(|before| *before == term) || others_too();
        if believed {
            told.insert(donor, term);
        }
        believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_alone_is_believed_once_and_with_others_again() {
        let terms = ForeignTerms::default();
        let told = |donor, epoch, start| {
            terms.believes(DonorId(donor), Term { epoch: Epoch(epoch), start, changes: 0 })
        };
        assert!(told(1, 5, 70));
        assert!(told(1, 5, 70), "the same word again: its answer was lost");
        assert!(!told(1, 9, 71) && !told(1, 9, 72) && !told(1, 9, 71));
        assert!(told(2, 9, 71), "another one's first word");
        assert!(told(1, 9, 71), "which bears it out");
        assert!(
            !told(1, 20, 73) && !told(2, 20, 73),
            "words that were not believed bear nothing out"
        );
    }
}
