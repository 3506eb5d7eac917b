//! Tests the promises of the pure rules, for any input.

mod properties {
    mod erasure;
    mod formats;
    mod limits;
    mod load;
    mod matching;
    mod near;
    mod placement;
    mod rate_estimate;
    mod read_plan;
    mod repair_plan;
    mod reservation;
    mod stripe_fit;
    mod write_plan;
}
