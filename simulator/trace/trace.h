#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/named_values.h"
#include "schedules/schedule.h"

namespace pw {

/// What a span shows. The first kinds are those of actions.
enum class SpanKind : std::uint8_t {
  Forward,
  Backward,
  BackwardInput,
  BackwardWeight,
  SendForward,
  SendBackward,  ///< a message in flight: on the sender's communication lane to `peer`
  WaitForward,
  WaitBackward,  ///< compute waits for a message that has not arrived
  ReduceGrad,  ///< gradients are summed over ranks: of a stage, from its REDUCE_GRAD to the end, while the rank computes; or (stage −1) of
               ///< shared parameters
  Optimizer,
  Load,   ///< lockstep: a microbatch's input or target from the host
  Store,  ///< lockstep: a microbatch's result to the host
};

/// The letters of a kind.
constexpr std::string_view nameOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward: return "F";
    case SpanKind::Backward: return "B";
    case SpanKind::BackwardInput: return "I";
    case SpanKind::BackwardWeight: return "W";
    case SpanKind::SendForward: return "SEND_F";
    case SpanKind::SendBackward: return "SEND_B";
    case SpanKind::WaitForward: return "WAIT_F";
    case SpanKind::WaitBackward: return "WAIT_B";
    case SpanKind::ReduceGrad: return "REDUCE_GRAD";
    case SpanKind::Optimizer: return "OPTIMIZER";
    case SpanKind::Load: return "LOAD";
    case SpanKind::Store: return "STORE";
  }
  return {};
}
[[nodiscard]] bool isCompute(SpanKind kind);  ///< F, B, I, W
[[nodiscard]] bool isMessage(SpanKind kind);  ///< in flight
[[nodiscard]] bool isWait(SpanKind kind);     ///< for a message

/// One interval on a lane of a rank. Compute, waits, sums of shared parameters' gradients and the optimizer are on the rank's compute lane;
/// a message is on the lane of its direction and rank pair (rank → peer), a stage's reduction on a separate lane of its rank.
struct Span {
  Rank rank;
  SpanKind kind = SpanKind::Forward;
  Stage stage;            ///< messages: the sender's; −1 where a span belongs to the whole rank
  Microbatch microbatch;  ///< −1 for reductions and optimizer
  Rank peer;              ///< messages: the receiver; else the rank itself
  Bytes bytes = 0;        ///< messages: payload; reductions: the gradient
  Ns start = 0;
  Ns end = 0;

  bool operator==(const Span&) const = default;
};

/// Whether it is a stage's reduction, which runs in parallel with the rank's compute lane.
[[nodiscard]] inline bool isBeside(const Span& span) { return span.kind == SpanKind::ReduceGrad && span.stage.value >= 0; }

/// Whether the two are one slot: a forward and a backward of one rank over the same time. They are adjacent in a trace.
[[nodiscard]] bool isSlot(const Span& forward, const Span& backward);

/// Memory of a rank from `time` on, until its next sample. An action has one at its start, one in its middle with its peak, and one at its
/// end.
struct MemorySample {
  Rank rank;
  Ns time = 0;
  Bytes bytes = 0;

  bool operator==(const MemorySample&) const = default;
};

/// What happened, or is predicted to happen, in one step. One type for both: timeline, metrics, store, export and
/// comparison each have one code path. Spans are ordered by (start, rank, end); samples by (rank, time).
struct Trace {
  int ranks = 0;
  std::vector<Span> spans;
  std::vector<MemorySample> memory;

  bool operator==(const Trace&) const = default;
};

/// Sorts into the order above and shifts times so that the first span starts at 0.
void normalize(Trace& trace);

/// Whether sums of its times stay within 64 bits: the idle time of all ranks, and that of all spans, which may overlap. Of a normalized
/// trace. Cost: linear.
[[nodiscard]] bool isSummable(const Trace& trace);

}  // namespace pw
