-- What format 2 adds to format 1.

-- ec: the code of an erasure-coded file, such as 4+2; copies is 1 then. parity: names of its parity
-- chunks, 32 bytes each, k for each group of m chunks in order; each counts a reference.
-- goal: the redundancy that the file is being changed to, as JSON; until it has that, copies and ec
-- hold. safe_wall_ms: since when all of its redundancy is there, NULL while its unsafe window is open.
ALTER TABLE versions ADD COLUMN ec TEXT;
ALTER TABLE versions ADD COLUMN parity BLOB;
ALTER TABLE versions ADD COLUMN goal TEXT;
ALTER TABLE versions ADD COLUMN safe_wall_ms INTEGER;

-- What differs below a directory from what holds above it, as JSON.
CREATE TABLE dir_policies (
    dir    INTEGER PRIMARY KEY,
    policy TEXT NOT NULL
);

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

-- Parity that was computed for a version on its way to an erasure code, a group a row: k names, 32
-- bytes each, which count references already. The version's change takes them over.
CREATE TABLE conversions (
    version INTEGER NOT NULL,
    ec      TEXT NOT NULL,
    part    INTEGER NOT NULL,
    parity  BLOB NOT NULL,
    PRIMARY KEY (version, ec, part)
) WITHOUT ROWID;

-- placements.state 3: leaving. The copy is there, serves as a source and counts for nothing else;
-- its donor is being told to delete it. placements.state 4: assumed. A session that ended may have
-- stored it there; it counts for nothing and is asked about when the chunk is reclaimed.

-- Single facts in words, by key: why garbage collection is held, that repair is paused, ….
CREATE TABLE notes (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Changes to names and members that are not yet in the pool's own journal (journal.rs), as JSON.
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    op  TEXT NOT NULL
);
