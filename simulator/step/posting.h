#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/check.h"
#include "simulator/step/program.h"

namespace pw {

/// How a runtime posts the messages of lowered rows, and when a rank waits for them. A transfer starts when both ends are posted and what
/// was posted before on their streams is over; an action always waits for its own messages.
struct Posting {
  /// Which messages of a rank go one after the other, in the order they are posted.
  enum class Streams : std::uint8_t {
    Direction,  ///< those to a peer, and those from it
    Pair,       ///< all with a peer: a communicator for each edge, as of plain isend and irecv with NCCL
    All,        ///< every one: one communicator for the ranks of a pipeline, as of batch_isend_irecv with NCCL
  };
  Streams streams = Streams::Direction;
  bool grouped = false;  ///< messages that are posted together run at the same time (an NCCL group), else one after the other

  /// The rank goes on with its row at `before` only when the message of the SEND or RECV at `message` is over.
  struct Wait {
    std::size_t before = 0, message = 0;

    bool operator==(const Wait&) const = default;
  };
  std::vector<std::vector<bool>> joined;  ///< by rank and position: a message that is posted together with the next one of the row
  std::vector<std::vector<Wait>> waits;   ///< by rank, ascending in `before`; `message` comes earlier in the row

  bool operator==(const Posting&) const = default;
};

/// A program, or where each rank is stuck for ever.
struct PostedProgram {
  Program program;
  std::vector<Problem> stuck;  ///< not empty: the rows deadlock, and `program` is empty
};

/// Compiles rows with sends and receives as that runtime runs them. Throws as `compile`, but for deadlocks. Cost: linear.
[[nodiscard]] PostedProgram compile(const Schedule& rows, const CostTable& costs, const Posting& posting);

}  // namespace pw
