-- The run store: an SQLite file. Times are nanoseconds. Executed once, in a transaction, on an empty file.
-- A change of this file needs a new user_version here and in backends/store/run_store.cpp.
PRAGMA application_id = 0x50777274;  -- "Pwrt"
PRAGMA user_version = 1;

-- One executed (or failed) run of a plan.
CREATE TABLE run (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  started_at     TEXT    NOT NULL,  -- UTC, ISO 8601
  backend        TEXT    NOT NULL,  -- gloo, ucx, nccl; behind it `, bf16` and the like where it computed in another way than traced
  failure        TEXT    NOT NULL,  -- empty when it ended well
  seed           INTEGER NOT NULL,  -- the bits of an unsigned number
  model          TEXT    NOT NULL,
  schedule       TEXT    NOT NULL,
  ranks          INTEGER NOT NULL,
  microbatches   INTEGER NOT NULL,
  host           TEXT    NOT NULL,  -- the machine it ran on
  processor      TEXT    NOT NULL,
  cores          INTEGER NOT NULL,
  device         TEXT    NOT NULL,
  plan           TEXT    NOT NULL,  -- JSON, with the profile it was made from
  predicted_ns   INTEGER NOT NULL,  -- predicted duration of a step
  predicted      BLOB    NOT NULL   -- trace: backends/store/trace_blob.h
) STRICT;

-- One training step of a run, as measured.
CREATE TABLE step (
  run            INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  position       INTEGER NOT NULL,  -- 0, 1, ... within the run
  step           INTEGER NOT NULL,  -- the number training gave it
  loss           REAL,              -- NULL: not a number
  duration_ns    INTEGER NOT NULL,
  measured       BLOB    NOT NULL,  -- trace: backends/store/trace_blob.h
  PRIMARY KEY (run, position)
) STRICT;
