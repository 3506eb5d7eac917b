//! Tests extended attributes in a mounted pool.

use super::mounted;
use crate::pool::content::{arg, bytes};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs;
use std::path::Path;

fn get(path: &Path, name: &str) -> Result<String, Errno> {
    let mut room = vec![0; 4096];
    let len = getxattr(path, name, &mut room[..])?;
    room.truncate(len);
    Ok(String::from_utf8(room).expect("text"))
}

#[test]
fn xattrs_show_pool_facts_and_set_directory_policies() {
    let Some((lab, mount)) = mounted(
        "extended_attributes_tell_what_the_pool_knows_and_set_policies",
        3,
        &["--copies", "2"],
        &[],
    ) else {
        return;
    };
    let (file, dir) = (mount.at("f"), mount.at("d"));
    fs::write(&file, bytes(1, 5 << 20)).expect("written");
    fs::create_dir(&dir).expect("made");
    let shown = lab.cli.json(&["stat", "pot://lab/f"]);
    assert_eq!(
        get(&file, "user.potluck.digest").ok().as_deref(),
        shown["entry"]["digest"].as_str()
    );
    assert_eq!(get(&file, "user.potluck.copies").as_deref(), Ok("2"));
    assert_eq!(get(&file, "user.potluck.ec"), Err(Errno::NODATA));
    assert_eq!(get(&dir, "user.potluck.copies").as_deref(), Ok("2"));
    assert_eq!(get(&mount.dir, "user.potluck.ack").as_deref(), Ok("memory"));
    assert_eq!(get(&dir, "user.potluck.digest"), Err(Errno::NODATA));
    let placement = get(&file, "user.potluck.placement").expect("told");
    let donors = shown["donors"].as_array().expect("donors");
    let expected: Vec<String> = donors
        .iter()
        .map(|donor| {
            format!(
                "{} {} live {}",
                donor["chunks"],
                donor["bytes"],
                donor["name"].as_str().expect("a name")
            )
        })
        .collect();
    assert_eq!(placement, expected.join("\n"));
    let mut little = [0; 3];
    assert_eq!(getxattr(&file, "user.potluck.digest", &mut little[..]), Err(Errno::RANGE));

    let set = |at: &Path, name: &str, value: &str| {
        setxattr(at, name, value.as_bytes(), XattrFlags::empty())
    };
    assert_eq!(set(&dir, "user.potluck.ec", "2+1"), Ok(()));
    assert_eq!(set(&dir, "user.potluck.ack", "disk"), Ok(()));
    let policy = lab.cli.json(&["stat", "pot://lab/d"])["policy"].clone();
    assert_eq!((&policy["ec"], &policy["ack"]), (&"2+1".into(), &"disk".into()), "{policy}");
    fs::write(dir.join("coded"), bytes(2, 5 << 20)).expect("written");
    assert_eq!(get(&dir.join("coded"), "user.potluck.ec").as_deref(), Ok("2+1"));
    assert_eq!(get(&dir, "user.potluck.copies"), Err(Errno::NODATA));
    assert_eq!(set(&dir, "user.potluck.copies", "1"), Ok(()));
    assert_eq!(get(&dir, "user.potluck.copies").as_deref(), Ok("1"));

    // Versions of what is written there are kept from then on.
    assert_eq!(get(&dir, "user.potluck.retain").as_deref(), Ok("none"));
    assert_eq!(set(&dir, "user.potluck.retain", "30d,10"), Ok(()));
    assert_eq!(get(&dir, "user.potluck.retain").as_deref(), Ok("30d,10"));
    assert_eq!(get(&mount.dir, "user.potluck.retain").as_deref(), Ok("none"));
    for content in ["one", "two"] {
        fs::write(dir.join("kept"), content).expect("written");
    }
    lab.cli.ok(&["revert", "pot://lab/d/kept"]);
    assert_eq!(lab.cli.cat("pot://lab/d/kept"), b"one");

    for (name, value, why) in [
        ("user.potluck.retain", "many", Errno::INVAL),
        ("user.potluck.copies", "0", Errno::INVAL),
        ("user.potluck.copies", "two", Errno::INVAL),
        ("user.potluck.ack", "paper", Errno::INVAL),
        ("user.potluck.digest", "x", Errno::PERM),
        ("user.potluck.placement", "x", Errno::PERM),
        ("user.comment", "x", Errno::OPNOTSUPP),
        ("trusted.x", "x", Errno::OPNOTSUPP),
    ] {
        assert_eq!(set(&dir, name, value), Err(why), "{name}={value}");
    }
    assert_eq!(get(&file, "user.comment"), Err(Errno::NODATA));
    assert_eq!(removexattr(&dir, "user.potluck.copies"), Err(Errno::PERM));
    let mut names = [0; 100];
    assert_eq!(listxattr(&file, &mut names[..]), Ok(0), "none is copied along");
    super::attributes::run("cp -a f copied; cp -a --preserve=all f all", &mount.dir);
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}
