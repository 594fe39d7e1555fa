#include <algorithm>
#include <limits>

#include "simulator/step/execute.h"
#include "simulator/step/program.h"

namespace pw {
namespace {

/// The first and last steps of a rank that are actions; none: both kNone. Posted ends of messages, loads and stores are left out.
struct Ends {
  std::int32_t first = -1, last = -1;
};

Ends actionsOf(const Program& program, std::int32_t rank) {
  const auto isAction = [&](std::int32_t step) {
    const auto s = static_cast<std::size_t>(step);
    if (program.origin[s].index < 0) return false;
    const MemoryUse& use = program.uses[static_cast<std::size_t>(program.useOf[s])];
    return program.duration[s] > 0 || use.born != 0 || use.died != 0;
  };
  const auto steps = program.stepsOf(rank);
  const auto first = std::find_if(steps.begin(), steps.end(), isAction);
  if (first == steps.end()) return {};
  return {*first, *std::find_if(steps.rbegin(), steps.rend(), isAction)};
}

/// From the first start to the last end of an action on any rank.
struct Extent {
  Ns first = std::numeric_limits<Ns>::max();
  Ns last = 0;

  [[nodiscard]] Ns length() const { return last > first ? last - first : 0; }
};

Extent extentOf(const Program& program, std::span<const Ns> duration, const Times& times) {
  Extent extent;
  for (std::int32_t rank = 0; rank < program.ranks; ++rank) {
    const Ends ends = actionsOf(program, rank);
    if (ends.first < 0) continue;
    extent.first = std::min(extent.first, times.start[static_cast<std::size_t>(ends.first)]);
    extent.last = std::max(extent.last, times.start[static_cast<std::size_t>(ends.last)] + duration[static_cast<std::size_t>(ends.last)]);
  }
  return extent;
}

}  // namespace

void execute(const Program& program, Times& times) { execute(program, program.duration, times); }

void execute(const Program& program, std::span<const Ns> duration, Times& times) {
  const std::size_t count = program.steps.size() - 1;
  times.start.assign(count, 0);
  times.laneEnd.assign(program.laneBegin.size() - 1, 0);
  const Step* const steps = program.steps.data();
  const Edge* edge = program.edges.data();
  const Edge* const edges = edge;
  const Ns* const delays = program.delays.data();
  Ns* const start = times.start.data();
  Ns* const laneEnd = times.laneEnd.data();
  for (std::size_t s = 0; s < count; ++s) {
    Ns& lane = laneEnd[steps[s].lane];
    const Ns begin = std::max(lane, start[s]);
    const Ns end = begin + duration[s];
    start[s] = begin;
    lane = end;
    for (const Edge* const last = edges + steps[s + 1].firstEdge; edge != last; ++edge) {
      Ns& ready = start[edge->to];
      ready = std::max(ready, end + delays[edge->delay]);
    }
  }
}

Ns makespanOf(const Program& program, std::span<const Ns> duration, const Times& times) {
  return extentOf(program, duration, times).length();
}

Ns windowOf(const Program& program, std::span<const Ns> duration, const Times& times) {
  Ns window = 0;
  for (std::int32_t rank = 0; rank < program.ranks; ++rank) {
    const Ends ends = actionsOf(program, rank);
    if (ends.first < 0) continue;
    const Ns end = times.start[static_cast<std::size_t>(ends.last)] + duration[static_cast<std::size_t>(ends.last)];
    window = std::max(window, end - times.start[static_cast<std::size_t>(ends.first)]);
  }
  return window;
}

std::vector<Ns> optimizerTimes(const Placement& placement, std::size_t ranks, const CostTable& costs) {
  std::vector<Ns> times(ranks, 0);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const Rank rank = placement.rankOfStage[s];
    times[rank.index()] += costs.stages[s].optimizer;
    if (placement.bidirectional() && placement.mirrorOfStage[s] != rank)
      times[placement.mirrorOfStage[s].index()] += costs.stages[s].optimizer;
  }
  return times;
}

Ns stepOf(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times) {
  const Extent extent = extentOf(program, program.duration, times);
  if (extent.length() == 0 || !program.basis.trains) return extent.length();
  const auto ranks = static_cast<std::size_t>(program.ranks);
  std::vector<Ns> end(times.laneEnd.begin(), times.laneEnd.begin() + program.ranks);  // of a rank's row and its reductions
  Ns last = extent.last;
  for (std::size_t r = 0; r < ranks && program.reducers > 0; ++r) {
    const auto lane = ranks + static_cast<std::size_t>(program.channels) + r;
    if (program.stepsOf(static_cast<std::int32_t>(lane)).empty()) continue;
    end[r] = std::max(end[r], times.laneEnd[lane]);
    last = std::max(last, times.laneEnd[lane]);
  }
  if (costs.reduceTime > 0) {
    last = *std::max_element(end.begin(), end.end()) + costs.reduceTime;
    end.assign(ranks, last);
  }
  const std::vector<Ns> optimizer = optimizerTimes(rows.placement, ranks, costs);
  for (std::size_t r = 0; r < ranks; ++r) last = optimizer[r] > 0 ? std::max(last, end[r] + optimizer[r]) : last;
  return last - extent.first;
}

}  // namespace pw
