#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_log.h"

namespace pw {

/// A live file shows what the ranks of a run are doing. Every rank appends lines to the one file, each line by one write, so that
/// lines of different ranks do not mix. A line is JSON without blanks, keys in this order:
///
///     {"rank":2,"step":7,"from":812345678901,"spans":[["F",0,0,3,1,0,0,10000],…],"memory":[[10000,1048576],…],"done":false}
///
/// rank: of all replicas. A span: kind, rank, stage, microbatch, peer, bytes, start, end; a memory sample: time, bytes. Ranks within are
/// those of the pipeline and messages have one end each, as in `StepLog`. Times are ns after `from`, which is on the host's monotonic
/// clock: a file is of the ranks of one host. `done`: the rank has ended this step.
class LiveWriter {
 public:
  /// Appends to the file, which is created if missing. Throws Error naming it when that fails.
  LiveWriter(const std::string& path, JobRank rank, Ns interval = 100'000'000);
  ~LiveWriter();
  LiveWriter(const LiveWriter&) = delete;
  LiveWriter& operator=(const LiveWriter&) = delete;

  void begin(int step);
  /// Writes what is new in the step's log if the last line is older than the interval. Cost: one comparison if nothing is written,
  /// otherwise some 0.1 µs per span and sample.
  void add(const StepLog& log) {
    if (!log.spans.empty() && log.spans.back().end - written_ >= interval_) write(log, false);
  }
  /// Whether it has given up, because the file could not be written or became too large.
  [[nodiscard]] bool hasStopped() const { return fd_ < 0; }
  /// Whether a rank that is about to wait should `write` first: that costs nothing then, and the wait may be long.
  [[nodiscard]] bool wantsPause(const StepLog& log, Ns now) const { return log.spans.size() > spans_ && now - written_ >= interval_ / 5; }
  /// Writes the rest. A full disk, or a file of 1 GiB, ends the reporting but not the run.
  void write(const StepLog& log, bool done);

 private:
  int fd_ = -1;
  JobRank rank_;
  Ns interval_, written_ = 0;
  int step_ = 0;
  std::size_t spans_ = 0, samples_ = 0;  // of the log, written so far
  bool cut_ = false;                     // the last line was not written to its end
  std::vector<char> line_;               // room for a line
};

/// A step as far as it is known.
struct LiveStep {
  int step = 0;
  Trace trace;            ///< from 0; a message of which one end is known has no length
  bool complete = false;  ///< all ranks have ended it

  bool operator==(const LiveStep&) const = default;
};

/// Reads a live file as it grows. Keeps the newest step and the last complete one, nothing of older steps. Safe for any input: lines that
/// are invalid, or name unknown ranks, are skipped.
class LiveReader {
 public:
  /// `ranks` of all replicas, `ranksOfPipeline` of each.
  LiveReader(int ranks, int ranksOfPipeline);

  /// Adds the next bytes of the file, split at any position. Returns whether they contained something new. Linear.
  bool feed(std::string_view bytes);
  /// The newest step as far as it is known, joined as by `joinTraces`. Cost: n log n.
  [[nodiscard]] std::optional<LiveStep> newest() const;
  /// The step to display: the newest, but the last complete one while the newest is younger than `young`, so that short steps are shown
  /// completely.
  [[nodiscard]] std::optional<LiveStep> worthShowing(Ns young = 300'000'000) const;

 private:
  bool take(std::string_view line);

  std::size_t ranks_, ranksOfPipeline_;
  int step_ = -1;
  std::optional<Ns> firstTime_;  // of the file
  std::vector<StepLog> logs_;    // of the newest step, by rank
  std::vector<bool> done_;
  std::optional<LiveStep> lastComplete_;
  std::string rest_;      // a line that has not ended
  bool tooLong_ = false;  // it is too long and is skipped
};

}  // namespace pw
