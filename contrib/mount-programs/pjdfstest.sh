#!/bin/bash
# Runs the POSIX suite pjdfstest in a mounted pool (docs/mount.md, "POSIX suites"), and names what fails beside what is not owed.
#
# usage: contrib/mount-programs/pjdfstest.sh MOUNT
#
# MOUNT is a mount by root with --allow-other; the users nobody and games work in it. Needs pjdfstest 0.2.2 (`cargo install pjdfstest`).
set -eu
mount=$(realpath "${1:?usage: pjdfstest.sh MOUNT}")
work=$(mktemp -d)
trap 'rm -rf "$work" "$mount/pjdfstest-$$"' EXIT
mkdir "$mount/pjdfstest-$$"
chmod 777 "$mount/pjdfstest-$$"
cat > "$work/settings.toml" <<'SETTINGS'
[features]
rename_ctime = {}
utime_now = {}
utimensat = {}
posix_fallocate = {}
[settings]
naptime = 0.01
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
SETTINGS
pjdfstest -c "$work/settings.toml" -p "$mount/pjdfstest-$$" > "$work/log" 2>&1 || true
grep '^Summary' "$work/log"

# A mount makes files, directories and symbolic links, and nothing else; it has no hard links.
not_owed='::(block|char|fifo|socket) |^mkfifo::|^mknod::|^link::|::fifo_nonblock|::socket_error|^rename::(preserve_metadata|to_multiply_linked)::regular'
not_owed+='|^unlink::(update_ctime_success|unchanged_ctime_failed)::regular'
# It does not count the directories in a directory.
not_owed+='|^rename::updates_link_parent'
failed=$(grep -E '^[a-z0-9_:]+ +FAILED' "$work/log" | grep -vE "$not_owed" || true)
[ -z "$failed" ] || { echo "$failed"; exit 1; }
echo "all that is owed passed"
