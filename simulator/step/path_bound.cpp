#include "simulator/step/path_bound.h"

#include <algorithm>
#include <map>

namespace pw {
namespace {

constexpr std::size_t kMostPaths = 24;  ///< a search for a model of 70 B parameters on 64 ranks was no faster with more

/// All times a path can consist of: 0, then of each stage F, B, I, W (as in UseSource), of each message its transfer, of each its latency,
/// of each stage its reduction.
std::vector<Ns> valuesOf(const CostTable& costs) {
  std::vector<Ns> values{0};
  values.reserve(1 + (kComputeKinds + 1) * costs.stages.size() + 2 * costs.messages.size());
  for (const StageCost& c : costs.stages) values.insert(values.end(), {c.forward, c.backward, c.backwardInput, c.backwardWeight});
  for (const MessageCost& m : costs.messages) values.push_back(m.transfer);
  for (const MessageCost& m : costs.messages) values.push_back(m.latency);
  for (const StageCost& c : costs.stages) values.push_back(c.reduce);
  return values;
}

bool isUniform(const CostTable& costs) {
  return costs.microbatchScale.empty() && costs.overlap.empty() && costs.load == 0 && costs.store == 0;
}

}  // namespace

void execute(const Program& program, Times& times, std::vector<Binding>& bindings) {
  const std::size_t count = program.steps.size() - 1;
  times.start.assign(count, 0);
  times.laneEnd.assign(program.laneBegin.size() - 1, 0);
  bindings.assign(count, {});
  std::vector<std::int32_t> laneLast(times.laneEnd.size(), -1);
  for (std::size_t s = 0; s < count; ++s) {
    const auto lane = static_cast<std::size_t>(program.steps[s].lane);
    if (times.laneEnd[lane] >= times.start[s] && laneLast[lane] >= 0) bindings[s] = {laneLast[lane], 0};
    const Ns begin = std::max(times.laneEnd[lane], times.start[s]);
    const Ns end = begin + program.duration[s];
    times.start[s] = begin;
    times.laneEnd[lane] = end;
    laneLast[lane] = static_cast<std::int32_t>(s);
    for (std::int32_t e = program.steps[s].firstEdge; e < program.steps[s + 1].firstEdge; ++e) {
      const Edge& edge = program.edges[static_cast<std::size_t>(e)];
      const auto to = static_cast<std::size_t>(edge.to);
      const Ns ready = end + program.delays[static_cast<std::size_t>(edge.delay)];
      if (ready <= times.start[to]) continue;
      times.start[to] = ready;
      bindings[to] = {static_cast<std::int32_t>(s), edge.delay};
    }
  }
}

void PathBounds::add(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times,
                     const std::vector<Binding>& bindings) {
  if (!isUniform(costs)) return;
  const std::vector<Ns> optimizer = optimizerTimes(rows.placement, rows.rows.size(), costs);
  const auto messages = static_cast<std::int32_t>(costs.messages.size());
  const auto firstMessage = static_cast<std::int32_t>(1 + kComputeKinds * costs.stages.size());
  const std::int32_t channels = program.ranks + program.channels, reducers = channels + program.reducers;
  // The rank that ends last, by its row or its reductions; with shared parameters all wait for the last.
  Rank rank;
  std::int32_t step = -1;
  Ns last = -1;
  for (std::int32_t r = 0; r < program.ranks; ++r) {
    for (const std::int32_t lane : {r, channels + r}) {
      if (lane != r && r >= program.reducers) continue;
      const auto steps = program.stepsOf(lane);
      if (steps.empty()) continue;
      const Ns end = times.laneEnd[static_cast<std::size_t>(lane)] + (costs.reduceTime > 0 ? 0 : optimizer[static_cast<std::size_t>(r)]);
      if (end <= last) continue;
      last = end;
      rank = Rank(r);
      step = steps.back();
    }
  }
  std::map<std::int32_t, std::int32_t> counts;
  while (step >= 0) {
    const auto s = static_cast<std::size_t>(step);
    const std::int32_t lane = program.steps[s].lane;
    if (lane < program.ranks) {
      const UseSource& source = program.sources[static_cast<std::size_t>(program.useOf[s])];
      if (source.action != 0) ++counts[source.action];
      if (source.partner != 0) ++counts[source.partner];
    } else if (lane < channels) {
      ++counts[firstMessage + program.origin[s].index];
    } else if (lane < reducers) {
      const auto& row = rows.rows[static_cast<std::size_t>(lane - channels)];
      ++counts[firstMessage + 2 * messages + row[static_cast<std::size_t>(program.origin[s].index)].stage.value];
    }
    const Binding& binding = bindings[s];
    if (binding.delay > 0) ++counts[firstMessage + messages + binding.delay - 1];
    step = binding.step;
  }
  if (paths_.size() >= kMostPaths) paths_.pop_back();
  paths_.insert(paths_.begin(), {{counts.begin(), counts.end()}, rank});
}

Ns PathBounds::stepWith(const Schedule& rows, const CostTable& costs, Ns enough) {
  if (paths_.empty() || !isUniform(costs)) return 0;
  const std::vector<Ns> values = valuesOf(costs);
  const std::vector<Ns> optimizer = optimizerTimes(rows.placement, rows.rows.size(), costs);
  const Ns slowest = *std::max_element(optimizer.begin(), optimizer.end());
  Ns bound = 0;
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    Ns length = costs.reduceTime > 0 ? costs.reduceTime + slowest : optimizer[paths_[p].rank.index()];
    for (const auto& [value, count] : paths_[p].counts) length += values[static_cast<std::size_t>(value)] * count;
    bound = std::max(bound, length);
    if (length <= enough) continue;
    std::rotate(paths_.begin(), paths_.begin() + static_cast<std::ptrdiff_t>(p), paths_.begin() + static_cast<std::ptrdiff_t>(p) + 1);
    break;
  }
  return bound;
}

}  // namespace pw
