#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/job_rank.h"
#include "schedules/schedule.h"

namespace pw::hang {

enum class OpKind : std::uint8_t { Send, Receive, Collective, Compute };

/// How far an operation came, as far as its recorder knows.
enum class OpState : std::uint8_t {
  Posted,   ///< enqueued, and perhaps waited for
  Started,  ///< the device or the transport works on it
  Done,
};

/// One operation of a rank, as its recorder wrote it down.
struct RecordedOp {
  OpKind kind = OpKind::Compute;
  OpState state = OpState::Posted;
  std::string name;                ///< the recorder's own: `nccl:recv 1<-0`, `1F3 from rank 0`
  JobRank peer{-1};                ///< of a message, counted in the whole job
  std::size_t group = 0;           ///< index into `Dumps::groups`
  std::int64_t sequence = -1;      ///< of a collective in its group; those launched together share it; −1: unknown
  Bytes bytes = 0;                 ///< of a message or a collective's input; 0: unknown
  Ns posted = 0;                   ///< on the recorder's clock, which may differ between hosts; 0: unknown
  std::optional<Action> action{};  ///< where the recorder names it
  std::size_t batch = 0;           ///< operations with the same number > 0 were started together
  bool setsUp = false;             ///< a message that a runtime sends for itself before a schedule's first step; of no action
  bool awaited = false;            ///< the recorder says that the rank was waiting for it
};

/// The ranks that share a communicator, counted in the whole job, in the communicator's order.
struct Group {
  std::string name;
  std::vector<JobRank> ranks;  ///< empty: all of the job, whose number may not be known yet

  auto operator<=>(const Group&) const = default;
};

/// What one rank recorded, oldest first.
struct RankDump {
  JobRank rank;
  std::string file;
  std::vector<RecordedOp> ops;
  bool complete = true;   ///< false: older operations were dropped, because the recorder keeps only so many
  int step = -1;          ///< the ops are of this step only; −1: of all since the start
  std::string failure{};  ///< why the rank ended, a sentence; empty where the recorder does not say it
};

/// A rank that NCCL RAS misses.
struct RankReport {
  JobRank rank;
  bool dead = false;  ///< the library gave it up; else it does not answer

  bool operator==(const RankReport&) const = default;
};

/// How many operations each rank of a communicator had enqueued, as NCCL RAS counts them.
struct OperationCounts {
  std::string group;      ///< name of the communicator
  std::string operation;  ///< `AllReduce`
  std::vector<JobRank> ranks;
  std::vector<std::int64_t> counts;  ///< of each of `ranks`
};

/// All that is known of a job that hangs.
struct Dumps {
  int ranks = 0;                ///< of the job; at least 1 more than the highest rank that is named
  std::vector<RankDump> dumps;  ///< by rank, each once
  std::vector<Group> groups;
  std::vector<RankReport> gone;          ///< by rank
  std::vector<OperationCounts> counted;  ///< of NCCL RAS
  std::vector<std::string> notes;        ///< sentences: what was left out, and why

  /// Null where the rank left no dump.
  [[nodiscard]] const RankDump* of(JobRank rank) const;
  /// How many members a group has, by its index in `groups`.
  [[nodiscard]] std::size_t sizeOf(std::size_t group) const;
  /// The member at a place below `sizeOf`.
  [[nodiscard]] JobRank memberAt(std::size_t group, std::size_t place) const;
  /// Nothing where the rank is no member. Cost: linear in a group whose members are listed.
  [[nodiscard]] std::optional<std::size_t> placeOf(std::size_t group, JobRank rank) const;
};

/// Whether it is a message.
[[nodiscard]] constexpr bool isMessage(OpKind kind) { return kind == OpKind::Send || kind == OpKind::Receive; }

}  // namespace pw::hang
