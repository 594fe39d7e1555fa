#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/report/phases.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/trace/trace.h"

namespace pw {

// ---- Causes, of executed times --------------------------------------------------------------------------------------

/// A kind of activity.
enum class Doing : std::uint8_t {
  Compute,
  Load,      ///< lockstep: from the host
  Store,     ///< lockstep: to the host
  Transfer,  ///< a message holds its channel
  Queue,     ///< another message holds the channel that a message waits for
  Latency,   ///< a message is in flight and holds no channel
};

/// An interval in which a rank or a message is active.
struct Segment {
  Doing doing = Doing::Compute;
  Rank rank;                      ///< messages: the sender
  Rank peer;                      ///< messages: the receiver; else the rank itself
  Action action;                  ///< messages: the one whose result they carry; of a slot the forward; meaningless for load and store
  std::optional<Action> partner;  ///< the backward of a slot
  Ns from = 0, to = 0;

  bool operator==(const Segment&) const = default;
};
[[nodiscard]] inline bool isMessage(Doing doing) { return doing == Doing::Transfer || doing == Doing::Queue || doing == Doing::Latency; }

/// The chain of actions and messages, each waiting for the one before, that ends with the last action (ties: on the lowest rank): its
/// segments tile the makespan. Shortening any of them shortens the makespan until another chain becomes the longest.
struct CriticalPath {
  /// Time on the path by rank.
  struct Share {
    Ns forward = 0, backward = 0, backwardInput = 0, backwardWeight = 0;
    Ns slot = 0;  ///< overlapped pairs
    Ns host = 0;  ///< load and store

    bool operator==(const Share&) const = default;
  };
  std::vector<Segment> segments;
  std::vector<Share> compute;  ///< by rank
  Ns transfer = 0, queue = 0, latency = 0;

  bool operator==(const CriticalPath&) const = default;
};

/// A gap on a rank's compute lane, before an action or at the end of its row, with its causes, which tile the gap in the order of time.
struct Bubble {
  Rank rank;
  Ns start = 0, end = 0;
  Phase phase = Phase::Warmup;
  std::optional<Action> next;  ///< the action that starts at `end`; none: the row is done and other ranks still work
  Action awaited;              ///< what the rank waits for: an action whose message comes last, or that ends last
  Rank awaitedRank;
  std::vector<Segment> causes;

  bool operator==(const Bubble&) const = default;
};

/// Idle time of a rank in one phase that is caused by one other rank, or by a message from it.
struct BubbleGroup {
  Rank rank;
  Phase phase = Phase::Warmup;
  Rank cause;            ///< who computes, or sends
  bool message = false;  ///< a message of `cause` is in flight, not an action
  Ns idle = 0;
  Ns longestFrom = 0;  ///< when the longest single cause of these starts (ties: the first)

  bool operator==(const BubbleGroup&) const = default;
};

/// Why a step takes as long as it does. All times are those of the trace, from its first to its last action.
struct Explanation {
  CriticalPath path;
  std::vector<Bubble> bubbles;      ///< by (rank, start)
  std::vector<BubbleGroup> groups;  ///< their causes, largest idle first, then by (rank, phase, cause, message)
  /// By rank: how long in its bubbles the inputs of an action (or of both of an overlapped pair) were there that its row computes later.
  /// Computing it then may need more memory, and need not shorten the step.
  std::vector<Ns> workReady;

  bool operator==(const Explanation&) const = default;
};

/// Traces back from each action what it waited for. Ties: a rank waits for its own previous action first, a message for its sender before
/// its channel; then for the lowest rank or, after ranks, the lowest channel, and its earliest step. Arguments as in `traceOf`; `times`
/// were computed with the program's durations. Cost: linear in steps plus the causes found: within the gaps of one rank no step occurs
/// twice. Without `keepsBubbles` only the groups are returned, so that memory does not grow with the number of causes.
[[nodiscard]] Explanation explain(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times,
                                  bool keepsBubbles = true);

/// Compiles, executes and explains.
[[nodiscard]] Explanation explain(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

}  // namespace pw
