#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/step/execute.h"
#include "simulator/step/posting.h"

namespace pw {

/// A training runtime whose way of posting messages is simulated.
enum class Runtime : std::uint8_t {
  Torch,     ///< torch.distributed.pipelining
  Megatron,  ///< Megatron-LM
};
constexpr std::string_view nameOf(Runtime runtime) {
  switch (runtime) {
    case Runtime::Torch: return "torch";
    case Runtime::Megatron: return "megatron";
  }
  return {};
}

/// What a receive that is posted before its message is sent does to the computation of its rank, in torch's `_PipelineScheduleRuntime`.
enum class PendingReceives : std::uint8_t {
  Block,    ///< stops it: where stages have collectives of their own (FSDP, expert or tensor parallelism), which wait for its kernel
  Overlap,  ///< nothing until the message is used: stages without communication of their own
};
constexpr std::string_view nameOf(PendingReceives receives) {
  switch (receives) {
    case PendingReceives::Block: return "block";
    case PendingReceives::Overlap: return "overlap";
  }
  return {};
}

/// Rows as a runtime runs them, and how it posts their messages.
struct RuntimeRows {
  Schedule rows;
  Posting posting;
  std::string how;  ///< a line for people
};

/// As torch runs the schedule: `_PipelineScheduleRuntime` posts each SEND and RECV in the order of the rows, all on the communicator of the
/// pipeline, and waits for a message where it is used. Rows without messages get them from torch's `_add_send_recv`. `single`: as
/// `ScheduleGPipe` and `Schedule1F1B` run gpipe and 1f1b: a receive is waited for at once, and 1F1B posts a send together with the receive
/// that follows it. (torch 2.11, torch/distributed/pipelining/schedules.py.) Throws UsageError where the rows are neither.
[[nodiscard]] RuntimeRows torchRows(const Schedule& schedule, PendingReceives receives, bool single = false);

/// The schedule with sends and receives where a pending receive stops a rank for a short time, as torch posts them (`Block`): both ends of
/// each message where it is sent or where it arrives with these times, or where `lower` places them, which knows no messages' times, or
/// no times at all; whichever is fastest. A schedule that torch does not have: as `lower`. None deadlocks. Throws as `lower` and `compile`.
/// Cost: n log n.
[[nodiscard]] Schedule messagesWhenDue(const Schedule& schedule, const CostTable& costs);

/// Whether Megatron-LM's interleaved schedule computes while messages are in flight.
enum class MegatronMessages : std::uint8_t {
  Overlap,  ///< its default
  Block,    ///< --no-overlap-p2p-communication
};

/// As Megatron-LM runs it (megatron/core/pipeline_parallel/schedules.py and p2p_communication.py, with the defaults of its other
/// arguments): 1F1B posts sends and receives in one group and waits for both; interleaved 1F1B waits for both in warm-up and cool-down and
/// for the receive where it is used between them, on a communicator for each edge (of two ranks: for each direction), even and odd ranks in
/// opposite order. With `Block` it posts and waits as 1F1B: in the steady state one group of up to four messages after each backward, the
/// forward's among them. Throws UsageError for a schedule that is not one of these two, and as Megatron does for interleaved stages of two
/// ranks with `Block`.
[[nodiscard]] RuntimeRows megatronRows(const Schedule& schedule, MegatronMessages messages = MegatronMessages::Overlap);

/// A receive that stops the computation of a rank before an action that does not need its message.
struct BlockedBy {
  Rank rank;
  Action receive;  ///< the RECV
  Action before;   ///< the action that comes next in the row
  Ns start = 0, end = 0;

  bool operator==(const BlockedBy&) const = default;
};
/// All of them, by rank and time. `times`: of the program.
[[nodiscard]] std::vector<BlockedBy> blockedReceives(const Schedule& rows, const Program& program, const Times& times);

}  // namespace pw
