# Installs /tmp/potluck.deb in a root that has nothing but Debian's essential packages, uses it, and
# takes it off again. Run by `cargo xtask test` with `sh -eu`.

# Every path but those of dpkg's own records, logs and scratch space.
paths() {
    find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/lib/dpkg \
        -o -path /var/log -o -path /var/cache \) -prune -o -print | sort
}

# Where a machine's own units stand; this root has no systemd that would have made it.
mkdir -p /etc/systemd/system

paths > /tmp/before

dpkg -i /tmp/potluck.deb
potluck --version
for page in potluck potluck-cp potluck-nodes-ls; do
    gzip -dc "/usr/share/man/man1/$page.1.gz" | grep -q '^\.SH SYNOPSIS'
done
bash -c 'source /usr/share/bash-completion/completions/potluck && complete -p potluck'
test -s /usr/share/doc/potluck/copyright
gzip -dc /usr/share/man/man8/mount.potluck.8.gz | grep -q 'allow.*other'
test -s /usr/lib/systemd/user/potluck-mount@.service
# The helper of mount(8) finds that nobody has joined a pool here.
mkdir /tmp/mounted
! /usr/sbin/mount.potluck pot://lab /tmp/mounted -o rw,_netdev 2> /tmp/said
grep -q 'potluck join' /tmp/said
dpkg --verify potluck

# Five processes, a file of this root, a death in the middle.
potluck demo --dir /tmp /usr/bin/potluck

# Installed over itself, as an upgrade does.
dpkg -i /tmp/potluck.deb

# A service of the machine takes the package's unit, and says the rest beside it.
test ! -e /var/lib/potluck
potluck service install lend --system --root / --dir /var/lib/potluck/lent
test ! -e /etc/systemd/system/potluck-lend.service
test -s /etc/systemd/system/potluck-lend.service.d/potluck.conf
test -s /usr/lib/systemd/user/potluck-lend.service

mkdir -p /etc/potluck
echo 'progress = false' > /etc/potluck/config.toml
echo 'the last copy' > /var/lib/potluck/chunk
dpkg -r potluck
test -s /etc/potluck/config.toml
dpkg -P potluck
test ! -e /etc/potluck
test -s /var/lib/potluck/chunk
rm -r /var/lib/potluck

paths > /tmp/after
diff /tmp/before /tmp/after
echo "all is as it was"
