-- The run store: an SQLite file. Times are nanoseconds. Executed once, in a transaction, on an empty file.
-- This is version 2; backends/store/migrations.cpp brings new files, too, from here to the present version, which adds the columns of
-- backends/store/run_columns.h.
PRAGMA application_id = 0x50777274;  -- "Pwrt"
PRAGMA user_version = 2;

-- One run of a plan: completed, failed or unfinished.
CREATE TABLE run (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  started_at     TEXT    NOT NULL,  -- UTC, ISO 8601
  backend        TEXT    NOT NULL,  -- gloo, ucx, nccl
  precision      TEXT    NOT NULL DEFAULT 'traced',     -- traced, bf16, fp16
  tf32           INTEGER NOT NULL DEFAULT 0,            -- 1: GPUs rounded the inputs of float32 matrix products
  synthetic      INTEGER NOT NULL DEFAULT 0,            -- 1: its stages computed nothing, for as long as the plan says
  state          TEXT    NOT NULL DEFAULT 'completed',  -- unfinished (running, or killed), completed, failed
  failure        TEXT    NOT NULL,  -- why it failed, one sentence; else empty
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

-- One training step of a run, as measured; written soon after it ended.
CREATE TABLE step (
  run            INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  position       INTEGER NOT NULL,  -- 0, 1, ... within the run
  step           INTEGER NOT NULL,  -- the number training gave it
  loss           REAL,              -- NULL: not a number
  gradient_norm  REAL,              -- NULL: not computed
  duration_ns    INTEGER NOT NULL,
  measured       BLOB    NOT NULL,  -- trace: backends/store/trace_blob.h
  PRIMARY KEY (run, position)
) STRICT;

-- Counts and medians without reading the traces.
CREATE INDEX step_duration ON step (run, duration_ns, position);
