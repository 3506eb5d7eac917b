use crate::chunks;
use crate::fixture::{Fixture, chunk, file};
use crate::placements::{self, Told};
use potluck_core::ids::DonorId;
use potluck_wire::control::Holding;

#[test]
fn a_copy_on_its_way_out_counts_again_when_it_was_put_or_looked_at_and_not_when_listed_d5() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    let row = chunks::get(&fixture.db, &chunk(1)).expect("read").expect("there");
    let counted = || placements::holders(&fixture.db, row.id).expect("read").len();
    let listed = Holding { name: chunk(1), len: 1000 };
    let tell = |told: Told| placements::tell(&fixture.db, DonorId(1), &told, 0);
    for again in [
        Told { sound: vec![chunk(1)], ..Told::default() },
        Told { added: vec![listed], ..Told::default() },
    ] {
        placements::mark_leaving(&fixture.db, &chunk(1), DonorId(1)).expect("marked");
        let compared = placements::compare(&fixture.db, DonorId(1), &[listed]).expect("compared");
        assert_eq!((compared.uncounted, compared.leaving), (vec![], vec![listed]));
        assert_eq!(counted(), 0);
        tell(again).expect("told");
        assert_eq!(counted(), 1);
    }
}
