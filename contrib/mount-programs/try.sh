#!/bin/bash
# Tries real programs in a mounted pool (docs/mount.md, "Programs that were tried").
#
# usage: contrib/mount-programs/try.sh MOUNT [OTHER_MOUNT] [PROGRAM...]
#
# MOUNT and OTHER_MOUNT are mounts of one space, by root, as two machines would have it. Each program that is installed works in a
# directory of its own, which is removed at the end, and is compared with the same on a local disk in $TMPDIR. Those that
# are missing are named. What runs on the other machine is started by OTHER_RUN, such as `ip netns exec b`, if it is set. SOURCE is a large tree to unpack (default: the newest linux-source-*.tar.xz of Debian in /usr/src).
set -u
mount=$(realpath "${1:?usage: try.sh MOUNT [OTHER_MOUNT] [PROGRAM...]}")
shift
other=$mount
[ $# -gt 0 ] && [ -d "$1" ] && other=$(realpath "$1") && shift
wanted=("$@")
local_dir=$(mktemp -d)
here=$mount/programs-$$
there=$other/programs-$$
mkdir "$here" || exit 1
trap 'rm -rf "$local_dir" "$here"' EXIT
failed=0

since() { awk -v begin="$1" -v now="$EPOCHREALTIME" 'BEGIN { print now - begin }'; }

# in_directory DIR PEER PLACE: runs $work there until its first command that fails. A shell passes over failures in
# whatever it runs as a condition, so this is one of its own, which is waited for.
in_directory() {
    (set -e; cd "$1"; peer=$2; export place=$3; "$work") >"$local_dir/log" 2>&1 &
    wait $!
    status=$?
}

# try NAME NEEDED-PROGRAM FUNCTION: runs it in a directory of its own, on a local disk and in the mount.
try() {
    local name=$1 needs=$2 work=$3
    if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
    if ! eval "$needs" >/dev/null 2>&1; then
        echo "MISSING  $name"
        return
    fi
    local begin end floor
    mkdir -p "$here/$name" "$local_dir/$name"
    begin=$EPOCHREALTIME
    in_directory "$local_dir/$name" "$local_dir/$name" disk
    if [ $status -ne 0 ]; then
        echo "BROKEN   $name: it fails on a local disk as well"; tail -3 "$local_dir/log"; return
    fi
    floor=$(since "$begin")
    begin=$EPOCHREALTIME
    in_directory "$here/$name" "$there/$name" pool
    if [ $status -eq 0 ]; then
        end=$(since "$begin")
        printf 'ok       %-14s %8.1f s, on a local disk %.1f s\n' "$name" "$end" "$floor"
    else
        failed=1
        echo "FAILED   $name"; tail -15 "$local_dir/log"
    fi
    rm -rf "${here:?}/$name" "${local_dir:?}/$name"
}

tree() { # a tree of files, directories, links, modes, times and owners
    mkdir -p tree/a/b tree/empty
    for number in $(seq 200); do head -c $((number * 97)) /dev/urandom > "tree/a/f$number"; done
    head -c 5000000 /dev/urandom > tree/a/b/large
    ln -s ../f1 tree/a/b/link; ln -s nowhere tree/dangling; chmod 600 tree/a/f2; chmod 755 tree/a/f3; chmod 700 tree/a/b
    touch -d 2001-02-03T04:05:06.789 tree/a/f4 tree/a/b tree/empty
}
rsync_twice() {
    tree
    rsync -a tree/ copy
    sent=$(rsync -a --itemize-changes tree/ copy)
    [ -z "$sent" ] || { echo "sent again: $sent"; return 1; }
    rsync -a --checksum --dry-run --itemize-changes tree/ copy | { ! grep .; }
}
cp_archive() { tree; cp -a tree copy; diff -r --no-dereference tree copy; [ "$(find tree -printf '%P %y %m %U %G %T@ %l\n' | sort)" = "$(cd copy; find . -printf '%P %y %m %U %G %T@ %l\n' | sort)" ]; }
git_clone() {
    git init -q origin; (cd origin; tree; git add -A; git -c user.name=x -c user.email=x@y commit -qm one; tar c tree | md5sum)
    git clone -q --no-hardlinks origin clone
    cd clone
    git fsck --strict; [ -z "$(git status --porcelain)" ]
    echo more >> tree/a/f1; git -c user.name=x -c user.email=x@y commit -qam two
    git gc -q; git fsck; git log --oneline | grep -c . | grep -qx 2
    git checkout -q HEAD~1; git status --porcelain | { ! grep .; }
}
restic_backup() {
    tree; export RESTIC_PASSWORD=x RESTIC_CACHE_DIR=$local_dir/restic-cache
    restic -q init -r repo; restic -q backup -r repo tree; echo more >> tree/a/f1; restic -q backup -r repo tree
    restic -q check --read-data -r repo; restic -q restore latest -r repo --target back; diff -r --no-dereference tree back/tree
}
h5py_files() {
    python3 - <<'PY'
import h5py, numpy as np
data = np.random.default_rng(1).standard_normal((500, 1000))
with h5py.File("f.h5", "w") as f:
    f.create_dataset("plain", data=data)
    d = f.create_dataset("chunked", shape=(0, 1000), maxshape=(None, 1000), chunks=(50, 1000), compression="gzip", dtype="f8")
    for n in range(0, 500, 50):
        d.resize(n + 50, axis=0)
        d[n:n + 50] = data[n:n + 50]
with h5py.File("f.h5", "r+") as f:
    f["plain"][10:20] = 0
    f["plain"].attrs["changed"] = "yes"
data2 = data.copy(); data2[10:20] = 0
with h5py.File("f.h5", "r") as f:
    assert (f["plain"][...] == data2).all() and (f["chunked"][...] == data).all() and f["plain"].attrs["changed"] == "yes"
PY
}
pip_target() { python3 -m pip install -q --no-compile -t target six idna; PYTHONPATH=target python3 -c 'import six, idna; print(six.__file__)' | grep -q target; }
sqlite_default() {
    sqlite3 db 'CREATE TABLE t (n INTEGER)'
    work() { for n in $(seq 30); do sqlite3 -cmd '.timeout 60000' "$1/db" "INSERT INTO t VALUES ($n)"; done; }
    work . & one=$!; work "$peer" & two=$!
    wait $one; wait $two
    for at in . "$peer"; do [ "$(sqlite3 -cmd '.timeout 60000' "$at/db" 'PRAGMA integrity_check; SELECT count(*) FROM t')" = $'ok\n60' ]; done
}
untar_diff() {
    tar xf "$source" ; name=$(ls)
    mkdir "$local_dir/reference"; tar xf "$source" -C "$local_dir/reference"
    diff -r --no-dereference "$name" "$local_dir/reference/$name"
    find . -type f -printf '%s\n' | wc -l; rm -rf "$local_dir/reference"
}
blast() {
    python3 - <<'PY'
import random
random.seed(1)
with open("db.fa", "w") as f, open("q.fa", "w") as q:
    for n in range(5000):
        s = "".join(random.choice("ACGT") for _ in range(1000))
        f.write(f">s{n}\n{s}\n")
        if n % 500 == 0: q.write(f">q{n}\n{s[200:700]}\n")
PY
    makeblastdb -in db.fa -dbtype nucl -out db > /dev/null
    blastn -db db -query q.fa -outfmt 6 -max_target_seqs 1 | sort > hits
    [ "$(cut -f1,2 hits | sort -u | grep -c .)" -ge 10 ]; grep -q "^q500	s500	100.000" hits
    (cd "$peer"; blastn -db db -query q.fa -outfmt 6 -max_target_seqs 1 | sort | diff - hits)
}
torch_checkpoint() {
    cat > step.py <<'PY'
import sys, torch, torch.distributed.checkpoint as dcp
what, path = sys.argv[1:]
torch.manual_seed(1)
model = torch.nn.Linear(500, 500)
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad(); model(torch.ones(1, 500)).sum().backward(); optimizer.step()
def total(): return float(sum(p.abs().double().sum() for p in model.parameters()))
state = lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
if what == "save":
    for _ in range(3): step()
    dcp.save(state(), checkpoint_id=path)
else:
    step(); loaded = state(); dcp.load(loaded, checkpoint_id=path)
    model.load_state_dict(loaded["model"]); optimizer.load_state_dict(loaded["optimizer"])
print(total()); step(); print(total())
PY
    python3 step.py save ckpt > saved; ${OTHER_RUN:-} python3 "$peer/step.py" load "$peer/ckpt" > loaded; diff saved loaded
}
fsx() { # random reads, writes, truncations and mappings of one file, against a model in memory
    python3 - <<'PY'
import mmap, os, random
random.seed(7)
fd = os.open("f", os.O_RDWR | os.O_CREAT)
model = bytearray()
for step in range(3000):
    what, at, n = random.randrange(6), random.randrange(400000), random.randrange(1, 60000)
    if what in (0, 1):
        data = random.randbytes(n); os.pwrite(fd, data, at)
        model.extend(bytes(max(0, at - len(model)))); model[at:at + n] = data
    elif what == 2:
        os.ftruncate(fd, at); del model[at:]; model.extend(bytes(at - len(model)))
    elif what == 3 and model:
        size = len(model)
        with mmap.mmap(fd, size) as m:
            at %= size; n = min(n, size - at); data = random.randbytes(n)
            assert m[at:at + n] == model[at:at + n], step
            m[at:at + n] = data; m.flush(); model[at:at + n] = data
    elif what == 4 and step % 10 == 0:
        os.close(fd); fd = os.open("f", os.O_RDWR)
    assert os.pread(fd, n, at) == model[at:at + n], (step, what, at, n)
    assert os.fstat(fd).st_size == len(model), step
os.close(fd)
assert open("f", "rb").read() == model
PY
}
atomic_names() { # a rename replaces at one moment, and O_EXCL makes one winner of many
    echo 0 > f
    (for n in $(seq 100); do echo "$n" > "f.$n"; mv -f "f.$n" f; done) & writer=$!
    while kill -0 $writer 2>/dev/null; do [ -n "$(cat f)" ] || { echo "empty in between"; exit 1; }; done
    wait $writer; [ "$(cat f)" = 100 ]
    for n in $(seq 20); do (set -C; echo "$n" > lock) 2>/dev/null && echo "$n" >> "$local_dir/won" & done; wait
    [ "$(grep -c . "$local_dir/won")" = 1 ]; rm -f "$local_dir/won"
}
mpi_io() { # four ranks on two mounts write one file with MPI-IO: together, each its own part, and by turns
    cat > io.py <<'PY'
import os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
path = os.path.join(sys.argv[1 + rank % 2], "out.bin")
piece, count = 47001, 40
mode = MPI.MODE_WRONLY
f = MPI.File.Open(comm, path, mode)
for n in range(count):  # by turns, at no border of anything
    at = (n * ranks + rank) * piece
    f.Write_at(at, bytes([n * ranks + rank & 255]) * piece)
part = 3 << 20
start = count * ranks * piece
f.Write_at_all(start + rank * part, bytes([100 + rank]) * part)  # all together
f.Close()
comm.Barrier()
if rank == 0:
    expected = b"".join(bytes([n & 255]) * piece for n in range(count * ranks))
    expected += b"".join(bytes([100 + r]) * part for r in range(ranks))
    for place in sys.argv[1:3]:
        assert open(os.path.join(place, "out.bin"), "rb").read() == expected, place
PY
    touch out.bin
    [ "$peer" = "$PWD" ] || setfattr -n user.potluck.shared -v 1 out.bin
    mpirun --allow-run-as-root --oversubscribe -np 4 ${MPI_OPTIONS:-} python3 io.py "$PWD" "$peer"
}

restart() { # a process that is killed while it writes a checkpoint goes on from the last whole one, on the other machine
    cat > run.py <<'PY'
import os, re, shutil, sys
import numpy as np
place, end, die_in = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PARTS, CKPT = 6, "user.potluck.ckpt"
def begin(path):  # on a local disk no directory is staged, and one is renamed when it is whole
    if os.environ["place"] == "pool": os.setxattr(place, CKPT, b"begin " + os.path.basename(path).encode()); return path
    shutil.rmtree(path + ".new", ignore_errors=True); os.mkdir(path + ".new"); return path + ".new"
def commit(path, written): os.setxattr(path, CKPT, b"commit") if written == path else os.rename(written, path)
whole = sorted(d for d in os.listdir(place) if re.fullmatch(r"step-\d{3}", d))
if whole:
    at = int(whole[-1][5:])
    parts = [np.load(f"{place}/{whole[-1]}/part-{n}.npy") for n in range(PARTS)]
    print("goes on from", whole[-1])
else:
    at, parts = 0, [np.random.default_rng(n).standard_normal(250_000) for n in range(PARTS)]
while at < end:
    at += 1
    parts = [np.cos(part) + 0.001 * at + other[::-1] for part, other in zip(parts, parts[1:] + parts[:1])]
    path = f"{place}/step-{at:03}"
    written = begin(path)
    for n, part in enumerate(parts):
        if at == die_in and n == PARTS // 2: os.kill(os.getpid(), 9)
        np.save(f"{written}/part-{n}.npy", part)
    commit(path, written)
print(repr(float(sum(part.sum() for part in parts))))
PY
    mkdir whole killed
    expected=$(python3 run.py whole 8 0)
    if python3 run.py killed 8 5; then echo 'it was not killed'; return 1; fi
    ${OTHER_RUN:-} python3 "$peer/run.py" "$peer/killed" 8 0 > second
    [ "$place" = disk ] || setfattr -n user.potluck.ckpt -v abort killed/step-005 # the one that was left
    grep -qx 'goes on from step-004' second; grep -qxF -- "$expected" second
}
vm() { KERNEL=$kernel "$scripts/vm-checkpoint.sh" "$PWD" "$peer" 3 3; }

scripts=$(cd "$(dirname "$0")" && pwd)
kernel=${KERNEL:-$(ls -t /boot/vmlinuz-* 2>/dev/null | head -1)}
source=${SOURCE:-$(ls /usr/src/linux-source-*.tar.xz 2>/dev/null | tail -1)}
try rsync 'command -v rsync' rsync_twice
try cp-a true cp_archive
try git 'command -v git' git_clone
try restic 'command -v restic' restic_backup
try h5py 'python3 -c "import h5py"' h5py_files
try pip 'python3 -m pip --version' pip_target
try sqlite 'command -v sqlite3' sqlite_default
try blast 'command -v makeblastdb' blast
try torch 'python3 -c "import torch.distributed.checkpoint"' torch_checkpoint
try restart 'command -v setfattr && python3 -c "import numpy"' restart
try vm 'command -v qemu-system-x86_64 && command -v busybox && command -v cpio && [ -r "$kernel" ]' vm
try mpi 'command -v mpirun && command -v setfattr && python3 -c "import mpi4py"' mpi_io
try fsx 'command -v python3' fsx
try names true atomic_names
try untar '[ -f "$source" ]' untar_diff
exit $failed
