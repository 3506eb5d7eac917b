-- The catalog. Times called *_ms are the pool's time (pool_time.rs) unless they say wall; until_ms of what is kept and used_ms
-- of checkpoints and steps are without its leaps.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE pool (
    name TEXT NOT NULL
);

CREATE TABLE members (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    role           TEXT NOT NULL,
    name           TEXT NOT NULL,
    fingerprint    BLOB NOT NULL UNIQUE,
    revoked        INTEGER NOT NULL DEFAULT 0,
    joined_wall_ms INTEGER NOT NULL,
    -- Whose token it was; NULL: made with the pool, or at a restore.
    invited_by     INTEGER,
    -- When a call came last, saved now and then; NULL: never.
    seen_wall_ms   INTEGER
);

-- Known by the hash of their secrets only. key: digest of the public key that used it, so that the
-- same join is answered again, with the same certificate, when the first reply was lost.
CREATE TABLE tokens (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    hash            BLOB NOT NULL UNIQUE,
    role            TEXT NOT NULL,
    made_by         INTEGER NOT NULL,
    made_wall_ms    INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    expires_ms      INTEGER NOT NULL,
    expires_wall_ms INTEGER NOT NULL,
    used_by         INTEGER,
    -- That of the donor who joins by it; NULL: who joins proposes one.
    name            TEXT,
    key             BLOB,
    certificate     BLOB
);

-- By these gateways act on behalf of members (access_keys.rs). secret: as it is, because signatures are checked with it.
-- spaces: the names of those in which the key can be used, as JSON. rights: their bits (rights.rs).
CREATE TABLE access_keys (
    id              TEXT PRIMARY KEY,
    secret          TEXT NOT NULL,
    member          INTEGER NOT NULL,
    spaces          TEXT NOT NULL,
    rights          INTEGER NOT NULL,
    unseals         INTEGER NOT NULL,
    label           TEXT NOT NULL,
    made_wall_ms    INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    expires_ms      INTEGER NOT NULL,
    expires_wall_ms INTEGER NOT NULL
);
CREATE INDEX access_keys_by_member ON access_keys (member);

CREATE TABLE spaces (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    root    INTEGER NOT NULL,
    policy  TEXT NOT NULL,
    -- The keys of a sealed space, as JSON (space_keys.rs).
    keys    TEXT,
    files   INTEGER NOT NULL DEFAULT 0,
    -- Directories below the root, and snapshots.
    dirs    INTEGER NOT NULL DEFAULT 0,
    bytes   INTEGER NOT NULL DEFAULT 0,
    -- Files of them whose content lives in the catalog.
    in_catalog INTEGER NOT NULL DEFAULT 0,
    -- NULL: the pool itself.
    made_by INTEGER
);
CREATE INDEX spaces_by_maker ON spaces (made_by);

-- Who may do what in a space. grantee: member:NUMBER or group:NAME. rights: their bits (rights.rs).
CREATE TABLE grants (
    space   INTEGER NOT NULL,
    grantee TEXT NOT NULL,
    rights  INTEGER NOT NULL,
    PRIMARY KEY (space, grantee)
) WITHOUT ROWID;
CREATE INDEX grants_by_grantee ON grants (grantee);

-- quota_of: space:NUMBER, or member:NUMBER for all spaces that the member made. NULL: no limit.
CREATE TABLE quotas (
    quota_of TEXT PRIMARY KEY,
    bytes    INTEGER,
    files    INTEGER
) WITHOUT ROWID;

CREATE TABLE member_groups (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;

CREATE TABLE group_members (
    member     INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    PRIMARY KEY (member, group_name)
) WITHOUT ROWID;
CREATE INDEX group_members_by_group ON group_members (group_name, member);

-- Directory 0 holds the spaces' roots. An entry has either a directory's number or a version, so
-- that a directory moves in O(1), or where a symbolic link leads. mtime_ns, permissions, uid, gid, ctime_ns, atime_ns: of
-- a directory or a link; NULL for a file, whose version has them. Both uid and gid are NULL where nobody said whom it belongs
-- to, atime_ns where no program set it.
-- A dir below 0 is the snapshot of that number, without its sign. since: the
-- first snapshot that shows the entry under this name, taken or yet to be taken. pinned: whether it is never purged. used_ms:
-- when it was used last as a step of a series that purges what is not, in the pool's time; 0 where that is not known.
CREATE TABLE entries (
    parent      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    dir         INTEGER,
    version     INTEGER,
    target      TEXT,
    mtime_ns    INTEGER,
    permissions INTEGER,
    uid         INTEGER,
    gid         INTEGER,
    ctime_ns    INTEGER,
    atime_ns    INTEGER,
    since       INTEGER NOT NULL DEFAULT 0,
    pinned      INTEGER NOT NULL DEFAULT 0,
    used_ms     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
-- From a version, and from a directory, to the path that leads there.
CREATE INDEX entries_by_version ON entries (version) WHERE version IS NOT NULL;
CREATE INDEX entries_by_dir ON entries (dir) WHERE dir IS NOT NULL;

-- What no path reaches any more, taken apart in the background: a directory, whose files count in the sums
-- of a space until then; a version of many chunks, of which recipe pages (with the digest of their file) and
-- conversions are left, or parts; or the names of chunks, 32 bytes each, whose references by that version are to end.
-- thrown_ms: when a version was removed, or was found to be open still, that is left whole for a while: one with parts,
-- or one that readers have open; NULL: at once.
CREATE TABLE trash (
    id        INTEGER PRIMARY KEY,
    dir       INTEGER,
    space     INTEGER,
    version   INTEGER,
    digest    BLOB,
    names     BLOB,
    thrown_ms INTEGER
);
CREATE INDEX trash_by_time ON trash (coalesce(thrown_ms, 0), id);

-- Checkpoints (checkpoints.rs). dir: where its files are staged; NULL: it has ended, and committed is the path of what
-- it became, NULL where it was aborted or expired. target: the path of that below the directory in which dir is.
-- style: whether its files replace the target (0), come to what is in it (1), or are what writers contribute to a file
-- that they share (2). used_ms: when it was used last, or ended. idle_ms: how long it stays open while it is not used.
-- Clients choose the id, so one of another space says nothing here: that of a shared file anybody may work out.
CREATE TABLE checkpoints (
    space         INTEGER NOT NULL,
    id            BLOB NOT NULL,
    dir           INTEGER,
    target        TEXT NOT NULL,
    style         INTEGER NOT NULL,
    made_by       INTEGER NOT NULL,
    begun_wall_ms INTEGER NOT NULL,
    used_ms       INTEGER NOT NULL,
    idle_ms       INTEGER NOT NULL,
    committed     TEXT,
    PRIMARY KEY (space, id)
) WITHOUT ROWID;
CREATE INDEX open_checkpoints ON checkpoints (dir) WHERE dir IS NOT NULL;
CREATE INDEX ended_checkpoints ON checkpoints (used_ms) WHERE dir IS NULL;
CREATE INDEX ended_checkpoints_by_maker ON checkpoints (made_by, used_ms) WHERE dir IS NULL;

-- What was replaced or removed and is kept for a while (history.rs): entries in the directory .potluck-kept of the
-- directory dir in which each had its name, there named by their numbers. number: of a version, or one of its own.
-- removed: whether it was removed, otherwise something took its place. until_ms: when it is let go; NULL: when enough
-- newer ones are kept. shown: whether it is kept for a snapshot that shows it, and for nothing else.
CREATE TABLE kept (
    number       INTEGER PRIMARY KEY,
    dir          INTEGER NOT NULL,
    name         TEXT NOT NULL,
    removed      INTEGER NOT NULL,
    kept_wall_ms INTEGER NOT NULL,
    kept_ms      INTEGER NOT NULL,
    member       INTEGER,
    until_ms     INTEGER,
    shown        INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX kept_by_name ON kept (dir, name, number);
CREATE INDEX kept_by_end ON kept (until_ms) WHERE until_ms IS NOT NULL;

-- Snapshots of directories (snapshots.rs). dir: what it shows. ended: it was removed, and what only it kept is being let
-- go.
CREATE TABLE snapshots (
    number       INTEGER PRIMARY KEY,
    dir          INTEGER NOT NULL,
    made_wall_ms INTEGER NOT NULL,
    member       INTEGER,
    ended        INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX snapshots_by_dir ON snapshots (dir);
CREATE INDEX snapshots_ended ON snapshots (number) WHERE ended = 1;

-- Directories such that a snapshot may show what is, or was, in them and below: that which it is of, and those that were
-- moved away from there since.
CREATE TABLE covered (
    dir      INTEGER NOT NULL,
    snapshot INTEGER NOT NULL,
    PRIMARY KEY (dir, snapshot)
) WITHOUT ROWID;
CREATE INDEX covered_by_snapshot ON covered (snapshot);

-- What names led to in the past, as far as snapshots show it (bygone.rs): those from since on and before until, of which
-- snapshot is the newest. The other columns are those of entries.
CREATE TABLE bygone (
    id          INTEGER PRIMARY KEY,
    parent      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    since       INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    snapshot    INTEGER NOT NULL,
    dir         INTEGER,
    version     INTEGER,
    target      TEXT,
    mtime_ns    INTEGER,
    permissions INTEGER,
    uid         INTEGER,
    gid         INTEGER,
    ctime_ns    INTEGER,
    atime_ns    INTEGER
);
CREATE INDEX bygone_by_name ON bygone (parent, name);
CREATE INDEX bygone_by_snapshot ON bygone (snapshot);
CREATE INDEX bygone_by_version ON bygone (version) WHERE version IS NOT NULL;
CREATE INDEX bygone_by_dir ON bygone (dir) WHERE dir IS NOT NULL;

-- What differs below a directory from what holds above it, as JSON. space: that in which the directory is, which it
-- never leaves.
CREATE TABLE dir_policies (
    dir    INTEGER PRIMARY KEY,
    space  INTEGER NOT NULL,
    policy TEXT NOT NULL
);
CREATE INDEX dir_policies_by_space ON dir_policies (space);

-- ec: the code of an erasure-coded file, such as 4+2; copies is 1 then. parity: names of its parity
-- chunks, 32 bytes each, k for each group of m chunks in order; each counts a reference.
-- goal: the redundancy that the file is being changed to, as JSON; until it has that, copies and ec
-- hold. safe_wall_ms: since when all of its redundancy is there, NULL while its unsafe window is open.
-- parts: of how many parts it is made; 0 where its chunks are its own. key: the number of the key that seals its
-- content; NULL in plain spaces, and where there is no content of its own. metadata: what its writer noted for other
-- programs, as JSON (file_metadata.rs). origin: where the file was imported from,
-- as JSON. cache: 0 kept; 1 cached, so that what is lost is fetched from the origin; 2 evicted.
CREATE TABLE versions (
    id           INTEGER PRIMARY KEY,
    size         INTEGER NOT NULL,
    holes        INTEGER NOT NULL,
    digest       BLOB NOT NULL,
    mtime_ns     INTEGER NOT NULL,
    permissions  INTEGER NOT NULL,
    uid          INTEGER,
    gid          INTEGER,
    ctime_ns     INTEGER NOT NULL,
    atime_ns     INTEGER,
    chunk_size   INTEGER NOT NULL,
    copies       INTEGER NOT NULL,
    chunks       INTEGER NOT NULL,
    inline       BLOB,
    ec           TEXT,
    parity       BLOB,
    goal         TEXT,
    safe_wall_ms INTEGER,
    parts        INTEGER NOT NULL DEFAULT 0,
    key          INTEGER,
    metadata     TEXT,
    origin       TEXT,
    cache        INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX versions_cached ON versions (id) WHERE cache = 1;
CREATE INDEX versions_evicted ON versions (id) WHERE cache = 2;
CREATE INDEX versions_by_key ON versions (key) WHERE key IS NOT NULL;

-- Versions that are made of parts (parts.rs). session, file: who is writing it, and its number there; NULL when it
-- is visible, or is in the trash.
CREATE TABLE wholes (
    id      INTEGER PRIMARY KEY,
    space   INTEGER NOT NULL,
    session BLOB,
    file    INTEGER
);
CREATE UNIQUE INDEX wholes_being_written ON wholes (session, file) WHERE session IS NOT NULL;

-- part: a version that no entry names. donors: those on whose copies it relies, 4 bytes each, so that it can be told
-- without looking at its chunks whether it still is as safe as it was judged, when so many losses were noted in the
-- term of a manager; NULL: something of it is lacking.
CREATE TABLE parts (
    whole  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    part   INTEGER NOT NULL UNIQUE,
    donors BLOB,
    term   INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    PRIMARY KEY (whole, number)
) WITHOUT ROWID;

CREATE TABLE recipe_pages (
    version INTEGER NOT NULL,
    page    INTEGER NOT NULL,
    blob    BLOB NOT NULL,
    PRIMARY KEY (version, page)
) WITHOUT ROWID;

-- state: 0 in use or waiting for it; 1 condemned (may be deleted anywhere at any time);
--        2 gone from every donor, remembered for a while in case a late writer brings it back.
-- zero_since_ms: when a version gave the chunk up last. Unless refs = 0, only what comes of the next that does depends on it.
-- referrer: the version whose recipe or parity names the chunk (referrers.rs); -1: several do, which
--        chunk_referrers lists; NULL exactly while refs = 0.
CREATE TABLE chunks (
    id            INTEGER PRIMARY KEY,
    name          BLOB NOT NULL UNIQUE,
    len           INTEGER NOT NULL,
    refs          INTEGER NOT NULL,
    zero_since_ms INTEGER,
    state         INTEGER NOT NULL DEFAULT 0,
    referrer      INTEGER
);
CREATE INDEX unused_chunks ON chunks (state, zero_since_ms) WHERE refs = 0;
CREATE INDEX unused_by_number ON chunks (state, id) WHERE refs = 0;

CREATE TABLE chunk_referrers (
    chunk   INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (chunk, version)
) WITHOUT ROWID;

-- state: 0 there; 1 missing; 2 spoiled; 3 leaving: it is there, serves as a source and counts for
-- nothing else, and its donor is being told to delete it.
-- ack: the highest level acknowledged, 0 memory, 1 disk.
CREATE TABLE placements (
    chunk INTEGER NOT NULL,
    donor INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    ack   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (chunk, donor)
) WITHOUT ROWID;
CREATE INDEX placements_by_donor ON placements (donor, chunk, state);

-- ended: nothing more becomes visible; what it offered is being accounted for. counted: bytes of its files that quotas
-- count and that are not visible yet. key: the number of the key that seals them; NULL in plain spaces.
CREATE TABLE sessions (
    id      BLOB PRIMARY KEY,
    member  INTEGER NOT NULL,
    space   INTEGER NOT NULL,
    policy  TEXT NOT NULL,
    plan    TEXT NOT NULL,
    bytes   INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    ended   INTEGER NOT NULL DEFAULT 0,
    key     INTEGER
) WITHOUT ROWID;

-- Names that a session may write, 32 bytes each.
CREATE TABLE offers (
    id      INTEGER PRIMARY KEY,
    session BLOB NOT NULL,
    names   BLOB NOT NULL
);
CREATE INDEX offers_by_session ON offers (session);

-- Replies to calls of a member, to repeat when they were lost (kept_replies.rs). call: commits of the write session id
-- (0), or a copy inside the pool (1).
CREATE TABLE kept_replies (
    id     BLOB NOT NULL,
    member INTEGER NOT NULL,
    call   INTEGER NOT NULL,
    step   INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    reply  TEXT NOT NULL,
    PRIMARY KEY (id, member, call, step)
) WITHOUT ROWID;
CREATE INDEX kept_replies_by_age ON kept_replies (at_ms);

-- What must be known of a donor after the manager's restart. heard_ms: when it was last heard.
-- away_until_ms: its absence is announced until then. start_bytes: what it held when it began to
-- give all back; NULL: it does not. at_once: nothing is waited for. quarantined: why its copies do
-- not count. addresses: where it was reached when it registered last, JSON.
CREATE TABLE donors (
    id            INTEGER PRIMARY KEY,
    heard_ms      INTEGER,
    away_until_ms INTEGER,
    start_bytes   INTEGER,
    at_once       INTEGER NOT NULL DEFAULT 0,
    quarantined   TEXT,
    addresses     TEXT
);

-- What is known of a donor's traffic, JSON: its rates and the history of a month. One write saves some.
CREATE TABLE donor_traffic (
    donor   INTEGER PRIMARY KEY,
    traffic TEXT NOT NULL
);

-- Parity that was computed for a version on its way to an erasure code, a group a row: k names, 32
-- bytes each, which count references already. The version's change takes them over.
CREATE TABLE conversions (
    version INTEGER NOT NULL,
    ec      TEXT NOT NULL,
    part    INTEGER NOT NULL,
    parity  BLOB NOT NULL,
    PRIMARY KEY (version, ec, part)
) WITHOUT ROWID;

-- Single facts in words, by key: why garbage collection is held, that repair is paused, ….
CREATE TABLE notes (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Changes that are not yet in every copy of the metadata log (changes.rs), as JSON.
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    op  TEXT NOT NULL
);
