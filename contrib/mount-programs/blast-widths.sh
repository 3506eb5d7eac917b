#!/bin/bash
# makeblastdb and blastn over a large FASTA file in mounts, beside a local disk (docs/mount.md, "A sequence database at several stripe widths").
#
# usage: contrib/mount-programs/blast-widths.sh LOCAL_DIR MOUNT...
#
# Each MOUNT is of a space, such as one made by `potluck space create w4 --width 4`. SIZE MiB of sequences (default 500) are made in
# LOCAL_DIR once. In each place makeblastdb reads them and writes its database beside, and blastn finds pieces of
# 20 sequences: cold, which is after the pages of the files in the place, and of all below STORES (the directories that donors lend on this machine), were
# forgotten, and again warm. Hits must be the same in all places. ROUNDS (default 1) rounds go through the places by turns; the
# middle value of each is printed.
set -eu
local_dir=$(realpath "${1:?usage: blast-widths.sh LOCAL_DIR MOUNT...}")
shift
places=("$local_dir" "$@")
size=${SIZE:-500}
work=blast-$$
trap 'for place in "${places[@]}"; do rm -rf "${place:?}/$work"; done' EXIT
for place in "${places[@]}"; do mkdir "$place/$work"; done

python3 - "$local_dir/$work" "$size" <<'PY'
import random, sys
random.seed(1)
letters = bytes(b"ACGT"[n % 4] for n in range(256))
with open(sys.argv[1] + "/all.fa", "wb") as out, open(sys.argv[1] + "/queries.fa", "wb") as queries:
    count = int(sys.argv[2]) * 1024 * 1024 // 10165
    for n in range(count):
        sequence = random.randbytes(10_000).translate(letters)
        out.write(b">s%08d\n" % n + b"".join(sequence[at:at + 70] + b"\n" for at in range(0, 10_000, 70)))
        if n % (count // 20 + 1) == 0: queries.write(b">q%d\n%s\n" % (n, sequence[2000:2800]))
PY
for place in "$@"; do cp "$local_dir/$work"/*.fa "$place/$work"; done

forget() { # forgets the pages of files that no program maps
    python3 - "$@" <<'PY'
import os, subprocess, sys
for top in sys.argv[1:]:
    subprocess.run(["sync", "-f", top])
    for where, _, names in os.walk(top):
        for name in names:
            try: fd = os.open(os.path.join(where, name), os.O_RDONLY)
            except OSError: continue
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
PY
}
cold() { forget "$1/$work" ${STORES:-}; }
timed() { # timed PLACE WHAT COMMAND...: notes the seconds that a command takes
    local place=$1 what=$2 begin=$EPOCHREALTIME
    shift 2
    "$@"
    awk -v place="$place" -v what="$what" -v b="$begin" -v e="$EPOCHREALTIME" 'BEGIN { print place, what, e - b }' >> "$local_dir/$work/times"
}
search() { (cd "$1/$work"; blastn -db db -query queries.fa -outfmt 6 | sort > "$local_dir/$work/hits"); }

expected=
for _ in $(seq "${ROUNDS:-1}"); do
    for place in "${places[@]}"; do
        rm -f "$place/$work"/db.*
        cold "$place"
        timed "$place" makeblastdb makeblastdb -in "$place/$work/all.fa" -dbtype nucl -title sequences -out "$place/$work/db" > /dev/null
        cold "$place"
        timed "$place" cold search "$place"
        timed "$place" warm search "$place"
        hits=$(md5sum < "$local_dir/$work/hits")
        [ "$(grep -c . "$local_dir/$work/hits")" -ge 20 ]
        [ "${expected:=$hits}" = "$hits" ] || { echo "other hits in $place"; exit 1; }
    done
done
python3 - "$local_dir/$work/times" <<'PY'
import collections, sys
times = collections.defaultdict(list)
for line in open(sys.argv[1]):
    place, what, seconds = line.split()
    times[place, what].append(float(seconds))
for (place, what), of_rounds in times.items():
    print(f"{place:40} {what:12} {sorted(of_rounds)[(len(of_rounds) - 1) // 2]:7.1f} s")
PY
uptime
