//! The ledger of reservations, against a model that adds them up.

use potluck_core::ids::{DonorId, SessionId};
use potluck_core::reservation::Ledger;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    Reserve(u8, BTreeMap<DonorId, u64>),
    Grow(u8, BTreeMap<DonorId, u64>),
    Used(u8, DonorId, u64),
    Release(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![9 => 0..1000_u64, 1 => any::<u64>()];
    let donor = || (0..4_u32).prop_map(DonorId);
    let promise = move || prop::collection::btree_map(donor(), bytes(), 0..4);
    prop_oneof![
        (0..4_u8, promise()).prop_map(|(session, promise)| Step::Reserve(session, promise)),
        (0..4_u8, promise()).prop_map(|(session, promise)| Step::Grow(session, promise)),
        (0..4_u8, donor(), bytes()).prop_map(|(session, donor, n)| Step::Used(session, donor, n)),
        (0..4_u8).prop_map(Step::Release),
    ]
}

/// The model of the ledger: the bytes that are promised to a session at a donor.
type Model = BTreeMap<(u8, DonorId), u64>;

fn drop_session(model: &mut Model, session: u8) -> BTreeMap<DonorId, u64> {
    let (gone, kept): (Model, Model) =
        std::mem::take(model).into_iter().partition(|((of, _), _)| *of == session);
    *model = kept;
    gone.into_iter().map(|((_, donor), bytes)| (donor, bytes)).collect()
}

fn add(model: &mut Model, session: u8, promise: &BTreeMap<DonorId, u64>) {
    for (donor, bytes) in promise {
        let cell = model.entry((session, *donor)).or_default();
        *cell = cell.saturating_add(*bytes);
    }
}

fn sum(model: &Model, of: impl Fn(&(u8, DonorId)) -> bool) -> u64 {
    let cells = model.iter().filter(|(key, _)| of(key));
    cells.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

proptest! {
    #[test]
    fn the_ledger_always_holds_the_sum_of_its_promises(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let id = |session: u8| SessionId([session; 16]);
        let (mut ledger, mut model) = (Ledger::default(), Model::new());
        for step in steps {
            match step {
                Step::Reserve(session, promise) => {
                    drop_session(&mut model, session);
                    add(&mut model, session, &promise);
                    ledger.reserve(id(session), promise);
                }
                Step::Grow(session, promise) => {
                    add(&mut model, session, &promise);
                    ledger.grow(id(session), promise);
                }
                Step::Used(session, donor, bytes) => {
                    let mut nothing = 0;
                    let cell = model.get_mut(&(session, donor)).unwrap_or(&mut nothing);
                    let paid = bytes.min(*cell);
                    *cell -= paid;
                    prop_assert_eq!(ledger.used(id(session), donor, bytes), paid);
                }
                Step::Release(session) => {
                    prop_assert_eq!(ledger.release(id(session)), drop_session(&mut model, session));
                }
            }
            for key in 0..4_u8 {
                let donor = DonorId(key.into());
                prop_assert_eq!(ledger.promised(donor), sum(&model, |(_, d)| *d == donor));
            }
        }
    }
}
