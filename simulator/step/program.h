#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {

/// Something done on a lane. A lane is a rank, a channel (its steps are transfers), the reductions of a rank or, in lockstep, the exchange
/// between cycles (its steps are barriers); each does its steps one after the other.
struct Step {
  std::int32_t lane = 0;
  std::int32_t firstEdge = 0;  ///< its edges go up to the next step's first

  bool operator==(const Step&) const = default;
};

/// `to` starts no earlier than its source's end plus `delays[delay]`.
struct Edge {
  std::int32_t to = 0;
  std::int32_t delay = 0;

  bool operator==(const Edge&) const = default;
};

/// What a step allocates at its start and frees at its end: bytes, and live (stage, microbatch) pairs. While it runs it has `peak` bytes
/// more.
struct MemoryUse {
  Bytes gain = 0, loss = 0, peak = 0;
  std::int32_t born = 0, died = 0;

  auto operator<=>(const MemoryUse&) const = default;
};

/// What a step does with a buffer: of values that a stage receives from other ranks, of gradients that it sends to them, or of values of
/// another stage of the rank that its W needs.
struct BufferChange {
  enum class What : std::uint8_t {
    Posted,  ///< the receive's buffer exists from the step's start
    Used,    ///< until the start of the step that uses it (whose activations include it)
    Kept,    ///< gradients are kept after the end of the step that made them
    Sent,    ///< to the end of this one
    Held,    ///< outputs of the stage before that the stage's W needs, after the end of that stage's backward
    Freed,   ///< to the end of this one, the W
    Handed,  ///< a gradient for another stage of the rank is kept after the end of the step that made it
    Taken,   ///< until the start of the step that uses it (whose peak includes it)
  };
  Stage stage;
  bool backward = false;
  What what = What::Posted;
  std::int32_t message = -1;  ///< of a gradient handed on: in the cost table

  auto operator<=>(const BufferChange&) const = default;
};

/// Which costs a use of memory consists of: those of an action or of the two of a slot, and of buffers.
struct UseSource {
  std::int32_t action = 0;       ///< 1 + 4 · stage + kind; 0: none
  std::int32_t partner = 0;      ///< the same of a slot's second action
  std::int32_t firstBuffer = 0;  ///< in `Program::buffers`; they go up to the next source's first

  bool operator==(const UseSource&) const = default;
};

/// Where a step comes from. Rank: `index` is the position of its (first) action in the row, or one of the two below. Channel: the
/// message of the cost table. Reduction: the position of its REDUCE_GRAD in the rank's row. Barrier: the cycle.
struct Origin {
  std::int32_t index = 0;
  Microbatch microbatch;  ///< of the (first) action, a message, a load or a store

  bool operator==(const Origin&) const = default;
};
inline constexpr std::int32_t kLoadStep = -1, kStoreStep = -2;

/// The part of the costs that determines which step waits for which: programs of the same rows with an equal basis differ in durations,
/// delays and bytes only.
struct Basis {
  struct Ends {
    Stage from, to;
    bool backward = false;

    bool operator==(const Ends&) const = default;
  };
  Sending sending = Sending::Overlapped;
  std::vector<Ends> messages;
  std::vector<bool> held;                ///< by channel: whether its messages wait for each other
  std::vector<bool> reduces;             ///< by stage: whether the rows reduce its gradients
  std::vector<bool> reductionTakesTime;  ///< by stage: and whether that takes time
  bool trains = false;                   ///< the rows have backwards
  bool loads = false, stores = false;

  bool operator==(const Basis&) const = default;
};

/// A schedule and its costs compiled for fast and repeated simulation. Rows are executed in order and channels are first come, first
/// served, so which step waits for which does not depend on times: the steps are in topological order, and one pass over them computes all
/// times. Durations and delays may be changed freely between passes (stragglers, jitter). Made by `compile`; `recost` sets other costs.
struct Program {
  std::int32_t ranks = 0;     ///< lanes 0 … ranks − 1
  std::int32_t channels = 0;  ///< lanes from `ranks` on
  std::int32_t reducers = 0;  ///< lanes after those: one for each rank, or none where nothing is reduced; in lockstep one lane more
  std::vector<Step> steps;    ///< each after everything it needs; and one more, where the last one's edges end
  std::vector<Ns> duration;   ///< by step
  std::vector<Edge> edges;    ///< by source
  std::vector<Ns> delays;     ///< 0, then the latency of each message of the cost table

  // Memory, which does not depend on times.
  std::vector<Bytes> peakBytes;        ///< by rank
  std::vector<std::int32_t> peakLive;  ///< by rank: (stage, microbatch) pairs
  std::vector<Bytes> atStart;          ///< by rank: parameters, gradients, optimizer state, buffers, data
  std::vector<MemoryUse> uses;
  std::vector<std::int32_t> useOf;    ///< by step: index into `uses`
  std::vector<UseSource> sources;     ///< by use, and one more where the last one's buffers end
  std::vector<BufferChange> buffers;  ///< by source

  // The way back to the schedule, for traces and explanations.
  std::vector<Origin> origin;           ///< by step
  std::vector<std::int32_t> laneSteps;  ///< the steps of lane 0 in their order, then those of lane 1, …
  std::vector<std::int32_t> laneBegin;  ///< by lane, and one more: where its steps begin in `laneSteps`
  Basis basis;

  bool operator==(const Program&) const = default;

  [[nodiscard]] std::span<const std::int32_t> stepsOf(std::int32_t lane) const {
    const auto begin = static_cast<std::size_t>(laneBegin[static_cast<std::size_t>(lane)]);
    return std::span(laneSteps).subspan(begin, static_cast<std::size_t>(laneBegin[static_cast<std::size_t>(lane) + 1]) - begin);
  }
};

/// The result of one pass, and its working memory: if it is kept between passes, nothing is allocated.
struct Times {
  std::vector<Ns> start;    ///< by step
  std::vector<Ns> laneEnd;  ///< by lane
};

/// The trace of executed times. `rows`: `rowsOf` the schedule that was compiled with these costs. Cost: n log n.
[[nodiscard]] Trace traceOf(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times);

}  // namespace pw
