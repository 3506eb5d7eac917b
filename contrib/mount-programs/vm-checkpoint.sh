#!/bin/bash
# Checkpoints of a whole virtual machine in a mounted pool, and its restart from another mount (docs/mount.md, "Programs that were tried").
#
# usage: contrib/mount-programs/vm-checkpoint.sh DIR OTHER_DIR [STEPS [SECONDS]]
#
# DIR and OTHER_DIR are one directory in two mounts, as two machines would have it. A Linux VM without disk or network counts, and keeps
# MEMORY MiB (default 96) of random blocks, of which it overwrites one at each count. Its state is written to DIR/step-N by QEMU's `migrate`
# every SECONDS (default 5), STEPS times (default 3). Then QEMU is killed, and another one, started by $OTHER_RUN (such as `ip netns exec b`), reads
# the last step from OTHER_DIR: the VM must go on with the next number, and find its blocks as they were. QEMU emulates the processor, so that it needs no rights.
#
# needs qemu-system-x86_64, busybox (static), cpio, python3; KERNEL is a kernel of Debian (default: the newest in /boot).
set -eu
dir=${1:?usage: vm-checkpoint.sh DIR OTHER_DIR [STEPS [SECONDS]]}
other=${2:?}
steps=${3:-3}
every=${4:-5}
memory=${MEMORY:-96}
kernel=${KERNEL:-$(ls -t /boot/vmlinuz-* 2>/dev/null | head -1)}
[ -r "$kernel" ] || { echo "no kernel to start: set KERNEL"; exit 2; }
work=$(mktemp -d)
qemu=
trap 'if [ -n "$qemu" ]; then kill -9 "$qemu" 2>/dev/null; fi; rm -rf "$work"' EXIT

mkdir -p "$work/root/bin" "$work/root/blocks" "$work/root/sums" "$work/root/dev" "$work/root/proc"
cp "$(command -v busybox)" "$work/root/bin/busybox"
cat > "$work/root/init" <<'VM'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t devtmpfs dev /dev; dmesg -n 1
blocks=$(sed 's/.*blocks=\([0-9]*\).*/\1/' /proc/cmdline)
replace() { dd if=/dev/urandom of=/blocks/$1 bs=1M count=1 conv=notrunc 2>/dev/null; md5sum < /blocks/$1 > /sums/$1; }
n=0; while [ $n -lt $blocks ]; do replace $n; n=$((n + 1)); done
hash=$(cat /proc/sys/kernel/random/boot_id)
echo "begin $hash"
n=0
while :; do
    n=$((n + 1))
    replace $((n % blocks))
    looked=$(((n * 7 + 3) % blocks))
    [ "$(md5sum < /blocks/$looked)" = "$(cat /sums/$looked)" ] || echo "block $looked is not what it was"
    hash=$(echo "$hash $n" | sha256sum | cut -c1-64)
    echo "count $n $hash"
    sleep 0.5
done
VM
chmod 755 "$work/root/init"
(cd "$work/root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) > "$work/initrd"

# start NAME [WORDS...]: a QEMU with its console in $work/NAME.console and its monitor at $work/NAME.monitor.
start() {
    local name=$1; shift
    ${run:-} qemu-system-x86_64 -accel tcg -cpu max -m $((memory + 160)) -smp 1 -nodefaults -nographic -no-reboot -kernel "$kernel" \
        -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 blocks=$memory" -serial "file:$work/$name.console" \
        -qmp "unix:$work/$name.monitor,server=on,wait=off" "$@" </dev/null & qemu=$!
    disown
}
# monitor NAME save FILE: writes the state of the VM to FILE, while it stands still. monitor NAME go-on: has a VM that was read go on.
monitor() {
    python3 - "$work/$1.monitor" "${@:2}" <<'PY'
import json, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile("rw")
def ask(execute, **arguments):
    f.write(json.dumps({"execute": execute, "arguments": arguments})); f.flush()
    while True:
        reply = json.loads(f.readline())
        if "error" in reply: sys.exit(str(reply["error"]))
        if "return" in reply: return reply["return"]
json.loads(f.readline()); ask("qmp_capabilities")
if sys.argv[2] == "save":
    ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    ask("stop")
    ask("migrate", uri="exec:cat > '%s'" % sys.argv[3])
    while (status := ask("query-migrate")["status"]) != "completed":
        if status == "failed": sys.exit("migrate failed")
        time.sleep(0.05)
else:
    while ask("query-status")["status"] == "inmigrate": time.sleep(0.05)
ask("cont")
PY
}
last_count() { tr -d '\r' 2>/dev/null < "$work/$1.console" | grep -a '^count [0-9]* [0-9a-f]\{64\}$' | tail -1 | cut -d' ' -f2,3; }
wait_for() { # wait_for NAME NUMBER: until the VM has counted so far
    local n
    for _ in $(seq 900); do
        n=$(last_count "$1"); [ "${n%% *}" -ge "$2" ] 2>/dev/null && return 0
        kill -0 $qemu || return 1
        sleep 0.1
    done
    echo "$1 does not count to $2"; tail -5 "$work/$1.console"; return 1
}

start first
wait_for first 3
for step in $(seq "$steps"); do
    sleep "$every"
    begin=$EPOCHREALTIME
    monitor first save "$dir/step-$step"
    seconds=$(awk -v b="$begin" -v e="$EPOCHREALTIME" 'BEGIN { printf "%.1f", e - b }')
    held=$(getfattr --only-values -n user.potluck.held "$dir/step-$step" 2>/dev/null || true)
    echo "step $step: $(($(stat -c %s "$dir/step-$step") >> 20)) MiB in $seconds s${held:+, the pool held $held of it}"
done
saved=$(last_count first)
wait_for first $((${saved%% *} + 5)) # it goes on for a while, and what it counts after the checkpoint is lost
kill -9 $qemu
while kill -0 $qemu 2>/dev/null; do sleep 0.1; done

run=${OTHER_RUN:-} start second -incoming "exec:cat '$other/step-$steps'"
until [ -S "$work/second.monitor" ]; do kill -0 $qemu; sleep 0.1; done
monitor second go-on
wait_for second 1
first=$(tr -d '\r' < "$work/second.console" | grep -a -m1 '^count [0-9]* [0-9a-f]\{64\}$' | cut -d' ' -f2)
wait_for second $((first + memory < first + 20 ? first + memory : first + 20))
if grep -a 'is not what it was' "$work/second.console"; then exit 1; fi
# All numbers of both, without those that the first counted after the checkpoint, are one row from the boot of the first.
python3 - "$work/first.console" "$work/second.console" <<'PY'
import hashlib, re, sys
first, second = (open(name, errors="replace").read().replace("\r", "") for name in sys.argv[1:])
assert "begin" not in second, "the VM was booted anew"
lines = lambda text: [(int(n), h) for n, h in re.findall(r"^count (\d+) ([0-9a-f]{64})$", text, re.M)]
rest = lines(second)
row = [line for line in lines(first) if line[0] < rest[0][0]] + rest
value = re.search(r"begin (\S{36})", first).group(1)
for at, (n, h) in enumerate(row, 1):
    value = hashlib.sha256(f"{value} {n}\n".encode()).hexdigest()
    assert (n, h) == (at, value), f"count {n} after {at - 1}"
print(f"went on at {rest[0][0]} of {row[-1][0]}; the first had come to {lines(first)[-1][0]}")
PY
