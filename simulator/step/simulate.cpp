#include "simulator/step/simulate.h"
#include "simulator/step/cost_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

struct MemoryChange {
  Rank rank;
  Ns time = 0;
  Bytes bytes = 0;
};

SpanKind waitKind(ActionKind kind) {
  const std::optional<SpanKind> span = spanKind(kind);
  return span == SpanKind::Forward || span == SpanKind::WaitForward ? SpanKind::WaitForward : SpanKind::WaitBackward;
}

/// Turns the times of a program into spans and a memory curve.
class Recorder {
 public:
  Recorder(const Schedule& schedule, const CostTable& costs, const Program& program, const Times& times)
      : schedule_(schedule), costs_(costs), program_(program), times_(times), rowEnd_(schedule.rows.size(), 0) {
    trace_.ranks = program.ranks;
    trace_.spans.reserve(3 * program.steps.size() / 2);
  }
  Trace run() {
    for (std::size_t rank = 0; rank < schedule_.rows.size(); ++rank) recordRow(Rank(rank));
    recordTransfers();
    recordFreeMessages();
    recordReductions();
    recordStepEnd();
    sampleMemory();
    normalize(trace_);
    return std::move(trace_);
  }

 private:
  [[nodiscard]] Ns startOf(std::int32_t step) const { return times_.start[static_cast<std::size_t>(step)]; }
  [[nodiscard]] Ns endOf(std::int32_t step) const { return startOf(step) + program_.duration[static_cast<std::size_t>(step)]; }
  void recordRow(Rank rank);
  void recordTransfers();
  void recordFreeMessages();
  void recordMessage(std::int32_t message, Microbatch microbatch, Ns start, Ns end);
  void recordReductions();
  void recordStepEnd();
  void changeMemory(Rank rank, Ns time, Bytes bytes) {
    if (bytes != 0) memory_.push_back({rank, time, bytes});
  }
  void sampleMemory();

  const Schedule& schedule_;
  const CostTable& costs_;
  const Program& program_;
  const Times& times_;
  std::vector<Ns> rowEnd_;
  std::vector<MemoryChange> memory_;
  Trace trace_;
};

void Recorder::recordRow(Rank rank) {
  const auto& row = schedule_.rows[rank.index()];
  changeMemory(rank, 0, program_.atStart[rank.index()]);
  Ns& end = rowEnd_[rank.index()];
  for (const std::int32_t step : program_.stepsOf(rank.value)) {
    const std::int32_t position = program_.origin[static_cast<std::size_t>(step)].index;
    const MemoryUse& use = program_.uses[static_cast<std::size_t>(program_.useOf[static_cast<std::size_t>(step)])];
    const Ns start = startOf(step);
    const Ns before = std::exchange(end, endOf(step));
    changeMemory(rank, start, use.gain);
    changeMemory(rank, start + (end - start) / 2, use.peak);
    changeMemory(rank, end, -use.loss - use.peak);
    if (position < 0) {
      const Microbatch microbatch = program_.origin[static_cast<std::size_t>(step)].microbatch;
      trace_.spans.push_back(
          {rank, position == kLoadStep ? SpanKind::Load : SpanKind::Store, Stage(rank.index()), microbatch, rank, 0, start, end});
      continue;
    }
    const Action& action = row[static_cast<std::size_t>(position)];
    if (start > before) trace_.spans.push_back({rank, waitKind(action.kind), action.stage, action.microbatch, rank, 0, before, start});
    if (!isCompute(action.kind)) continue;
    trace_.spans.push_back({rank, *spanKind(action.kind), action.stage, action.microbatch, rank, 0, start, end});
    if (!beginsSlot(row, static_cast<std::size_t>(position))) continue;
    const Action& partner = row[static_cast<std::size_t>(position) + 1];
    trace_.spans.push_back({rank, *spanKind(partner.kind), partner.stage, partner.microbatch, rank, 0, start, end});
  }
}

void Recorder::recordMessage(std::int32_t message, Microbatch microbatch, Ns start, Ns end) {
  const MessageCost& m = costs_.messages[static_cast<std::size_t>(message)];
  const Rank receiver = schedule_.placement.rankOf(m.to, microbatch);
  trace_.spans.push_back({schedule_.placement.rankOf(m.from, microbatch), m.backward ? SpanKind::SendBackward : SpanKind::SendForward,
                          m.from, microbatch, receiver, m.bytes, start, end});
}

void Recorder::recordTransfers() {
  for (std::int32_t lane = program_.ranks; lane < program_.ranks + program_.channels; ++lane) {
    for (const std::int32_t step : program_.stepsOf(lane)) {
      const Origin& message = program_.origin[static_cast<std::size_t>(step)];
      recordMessage(message.index, message.microbatch, startOf(step),
                    endOf(step) + program_.delays[static_cast<std::size_t>(message.index) + 1]);
    }
  }
}

/// Messages that hold no channel are edges between ranks.
void Recorder::recordFreeMessages() {
  for (std::int32_t step = 0; step + 1 < static_cast<std::int32_t>(program_.steps.size()); ++step) {
    const Step& from = program_.steps[static_cast<std::size_t>(step)];
    if (from.lane >= program_.ranks) continue;
    for (std::int32_t e = from.firstEdge; e < program_.steps[static_cast<std::size_t>(step) + 1].firstEdge; ++e) {
      const Edge& edge = program_.edges[static_cast<std::size_t>(e)];
      if (edge.delay == 0) continue;
      const auto& row = schedule_.rows[static_cast<std::size_t>(from.lane)];
      const auto position = static_cast<std::size_t>(program_.origin[static_cast<std::size_t>(step)].index);
      const MessageCost& m = costs_.messages[static_cast<std::size_t>(edge.delay) - 1];
      const bool second = row[position].stage != m.from || (row[position].kind == ActionKind::Forward) == m.backward;
      recordMessage(edge.delay - 1, row[position + (second ? 1 : 0)].microbatch, endOf(step),
                    endOf(step) + program_.delays[static_cast<std::size_t>(edge.delay)]);
    }
  }
}

/// The rank is done when its reductions are.
void Recorder::recordReductions() {
  for (std::int32_t rank = 0; rank < program_.reducers; ++rank) {
    Ns& end = rowEnd_[static_cast<std::size_t>(rank)];
    for (const std::int32_t step : program_.stepsOf(program_.ranks + program_.channels + rank)) {
      const auto position = static_cast<std::size_t>(program_.origin[static_cast<std::size_t>(step)].index);
      const Stage stage = schedule_.rows[static_cast<std::size_t>(rank)][position].stage;
      end = std::max(end, endOf(step));
      trace_.spans.push_back({Rank(rank), SpanKind::ReduceGrad, stage, Microbatch(-1), Rank(rank),
                              costs_.stages[stage.index()].gradientBytes, startOf(step), endOf(step)});
    }
  }
}

/// Reduction of shared gradients, all ranks together, then each rank's optimizer.
void Recorder::recordStepEnd() {
  const bool trains =
      std::any_of(trace_.spans.begin(), trace_.spans.end(), [](const Span& s) { return isCompute(s.kind) && s.kind != SpanKind::Forward; });
  if (!trains) return;
  if (costs_.reduceTime > 0) {
    const Ns start = *std::max_element(rowEnd_.begin(), rowEnd_.end());
    for (std::size_t r = 0; r < rowEnd_.size(); ++r) {
      rowEnd_[r] = start + costs_.reduceTime;
      trace_.spans.push_back({Rank(r), SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), Rank(r), 0, start, rowEnd_[r]});
    }
  }
  const auto step = [&](Rank rank, std::size_t stage) {
    if (costs_.stages[stage].optimizer == 0) return;
    Ns& clock = rowEnd_[rank.index()];
    const Ns start = std::exchange(clock, clock + costs_.stages[stage].optimizer);
    trace_.spans.push_back({rank, SpanKind::Optimizer, Stage(stage), Microbatch(-1), rank, 0, start, clock});
  };
  for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
    step(schedule_.placement.rankOfStage[s], s);
    if (schedule_.placement.bidirectional() && schedule_.placement.mirrorOfStage[s] != schedule_.placement.rankOfStage[s])
      step(schedule_.placement.mirrorOfStage[s], s);
  }
}

/// One sample at 0 for each rank, then one where the bytes after all changes of an instant differ from before; before it one of the most in
/// between, where a step of no length needs more than is there before and after it.
void Recorder::sampleMemory() {
  std::ranges::stable_sort(memory_, {}, [](const MemoryChange& change) { return std::tie(change.rank, change.time); });
  auto change = memory_.cbegin();
  for (std::size_t r = 0; r < schedule_.rows.size(); ++r) {
    Bytes bytes = 0;
    for (Ns time = 0;;) {
      Bytes most = bytes;
      for (; change != memory_.cend() && change->rank == Rank(r) && change->time == time; ++change)
        most = std::max(most, bytes += change->bytes);
      const bool isFirst = trace_.memory.empty() || trace_.memory.back().rank != Rank(r);
      if (most > bytes && (isFirst || most > trace_.memory.back().bytes)) trace_.memory.push_back({Rank(r), time, most});
      if (isFirst || bytes != trace_.memory.back().bytes) trace_.memory.push_back({Rank(r), time, bytes});
      if (change == memory_.cend() || change->rank != Rank(r)) break;
      time = change->time;
    }
  }
}

}  // namespace

Trace traceOf(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times) {
  return Recorder(rows, costs, program, times).run();
}

Trace simulate(const Schedule& schedule, const CostTable& costs, Sending sending) {
  const Schedule rows = rowsOf(schedule, sending);
  const Program program = compile(rows, costs, sending);
  Times times;
  execute(program, times);
  return traceOf(rows, costs, program, times);
}

}  // namespace pw
