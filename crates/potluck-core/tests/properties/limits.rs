//! The owner's limits, and sizes as people write them and are shown them.

use potluck_core::owner_limits::{DiskState, KeepFree, Limits, excess, room};
use potluck_core::size::{exact_size, format_size, parse_size};
use proptest::prelude::*;

fn keep_free() -> impl Strategy<Value = KeepFree> {
    prop_oneof![
        any::<u64>().prop_map(KeepFree::Bytes),
        (0.0..=100.0_f64).prop_map(KeepFree::Percent)
    ]
}

proptest! {
    #[test]
    fn writing_all_the_room_crosses_no_limit(
        max: u64, keep_free in keep_free(), total: u64, available: u64, lent_used: u64,
    ) {
        let limits = Limits { max, keep_free };
        let disk = DiskState { total, available, lent_used };
        let bytes = room(&limits, &disk);
        if bytes > 0 {
            prop_assert!(lent_used + bytes <= max);
            prop_assert!(available - bytes >= keep_free.floor(total));
            prop_assert_eq!(excess(&limits, &disk), 0);
        }
    }

    #[test]
    fn evicting_the_excess_restores_the_limits(
        max in 0..1000_u64, floor in 0..1000_u64, available in 0..1000_u64, lent_used in 0..1000_u64,
    ) {
        let limits = Limits { max, keep_free: KeepFree::Bytes(floor) };
        let back = excess(&limits, &DiskState { total: 3000, available, lent_used });
        let left = lent_used - back;
        prop_assert!(left == 0 || (left <= max && available + back >= floor));
    }

    #[test]
    fn keep_free_setting_round_trips(keep in keep_free()) {
        prop_assert_eq!(keep.to_string().parse(), Ok(keep));
    }

    #[test]
    fn sizes_read_back(bytes: u64, shift in 0..64_u32) {
        let bytes = bytes >> shift;
        prop_assert_eq!(parse_size(&exact_size(bytes)), Ok(bytes));
        if let Ok(shown) = parse_size(&format_size(bytes).replace("EiB", "")) && bytes < 1 << 60 {
            prop_assert!(shown.abs_diff(bytes) as f64 <= 0.05 * bytes as f64);
        }
    }

    #[test]
    fn no_text_makes_size_parsing_panic(text in "[0-9. ]{0,30}[a-zA-Zµ%]{0,3}") {
        let _ = parse_size(&text);
        let _ = text.parse::<KeepFree>();
    }
}

#[test]
fn sizes_are_written_as_people_write_them() {
    let cases = [
        ("123", 123),
        ("0", 0),
        ("4MiB", 4 << 20),
        ("200GiB", 200 << 30),
        ("1.5TB", 1_500_000_000_000),
        (" 1.5 gib ", 3 << 29),
        ("2k", 2048),
        ("2KB", 2000),
        ("0.1KiB", 102),
        ("18446744073709551615", u64::MAX),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for bad in ["", "GiB", "-1", "1.2.3", "1.", ".5", "12 parsecs", "1e6", "17000000PB"] {
        let error = parse_size(bad).expect_err(bad).to_string();
        assert!(error.contains(bad) && error.contains(':'), "{error}");
    }
}

#[test]
fn sizes_are_shown_with_one_decimal() {
    let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 40, u64::MAX].map(format_size);
    assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 TiB", "16.0 EiB"]);
}

#[test]
fn a_bare_fraction_is_no_amount_to_keep_free() {
    let said = |text: &str| text.parse::<KeepFree>().expect_err("refused").to_string();
    assert!(said("0.1").contains("write 10% for"), "{}", said("0.1"));
    assert!(said("0.125").contains("12.5%"), "{}", said("0.125"));
    assert!(said("1.5").contains("1.5GiB"), "{}", said("1.5"));
    for good in ["0.1%", "1.5GiB", "0", "0%", "15 %"] {
        assert!(good.parse::<KeepFree>().is_ok(), "{good}");
    }
}

#[test]
fn keep_free_takes_a_share_or_a_size() {
    assert_eq!("15%".parse(), Ok(KeepFree::Percent(15.0)));
    assert_eq!("50GiB".parse(), Ok(KeepFree::Bytes(50 << 30)));
    assert_eq!(KeepFree::Bytes(50 << 30).to_string(), "50GiB");
    for bad in ["101%", "-1%", "NaN%", "%", "half"] {
        assert!(bad.parse::<KeepFree>().is_err(), "{bad}");
    }
    assert_eq!(KeepFree::Percent(15.0).floor(1000), 150);
}
