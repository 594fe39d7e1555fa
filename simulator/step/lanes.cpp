#include "simulator/step/lanes.h"

#include <algorithm>
#include <utility>

namespace pw {
namespace {

/// Edges by source: those of step s are edges[first[s]] … edges[first[s + 1] − 1].
struct Edges {
  std::vector<std::int32_t> first;
  std::vector<Edge> edges;
};

Edges bySource(const Lanes& lanes) {
  Edges e;
  e.first.assign(lanes.steps.size() + 1, 0);
  for (const Lanes::Link& link : lanes.links) ++e.first[static_cast<std::size_t>(link.from) + 1];
  for (std::size_t s = 1; s < e.first.size(); ++s) e.first[s] += e.first[s - 1];
  e.edges.resize(lanes.links.size());
  std::vector<std::int32_t> next(e.first.begin(), e.first.end() - 1);
  for (const Lanes::Link& link : lanes.links)
    e.edges[static_cast<std::size_t>(next[static_cast<std::size_t>(link.from)]++)] = {link.to, link.delay};
  return e;
}

/// A topological sort of the steps: lane by lane as far as their inputs are done; a lane is revisited when its next step gets its last
/// input. Also returns how far each lane got.
std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> sorted(const Lanes& lanes, const Edges& e) {
  std::vector<std::int32_t> missing(lanes.steps.size(), 0);
  for (const Edge& edge : e.edges) ++missing[static_cast<std::size_t>(edge.to)];
  std::vector<std::int32_t> at(lanes.begin.begin(), lanes.begin.end() - 1);
  std::vector<std::size_t> awake;
  for (std::size_t lane = at.size(); lane-- > 0;) awake.push_back(lane);
  std::vector<std::int32_t> order;
  order.reserve(lanes.steps.size());
  while (!awake.empty()) {
    const std::size_t lane = awake.back();
    awake.pop_back();
    for (std::int32_t& step = at[lane]; step < lanes.begin[lane + 1] && missing[static_cast<std::size_t>(step)] == 0; ++step) {
      order.push_back(step);
      for (std::int32_t i = e.first[static_cast<std::size_t>(step)]; i < e.first[static_cast<std::size_t>(step) + 1]; ++i) {
        const auto to = static_cast<std::size_t>(e.edges[static_cast<std::size_t>(i)].to);
        const auto other = static_cast<std::size_t>(lanes.steps[to].lane);
        if (--missing[to] == 0 && other != lane && at[other] == static_cast<std::int32_t>(to)) awake.push_back(other);
      }
    }
  }
  return {std::move(order), std::move(at)};
}

}  // namespace

std::vector<std::int32_t> layOut(const Lanes& lanes, Program& program) {
  const Edges e = bySource(lanes);
  auto [order, reached] = sorted(lanes, e);
  if (order.size() < lanes.steps.size()) return std::move(reached);

  program.laneBegin = lanes.begin;
  std::vector<std::int32_t>& place = program.laneSteps;  // drafts are numbered lane after lane, so this is both
  place.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  program.steps.reserve(order.size() + 1);
  program.edges.reserve(e.edges.size());
  program.useOf.reserve(order.size());
  program.origin.reserve(order.size());
  for (const std::int32_t old : order) {
    const Lanes::Draft& draft = lanes.steps[static_cast<std::size_t>(old)];
    program.steps.push_back({draft.lane, static_cast<std::int32_t>(program.edges.size())});
    program.useOf.push_back(draft.use);
    program.origin.push_back(draft.origin);
    for (std::int32_t i = e.first[static_cast<std::size_t>(old)]; i < e.first[static_cast<std::size_t>(old) + 1]; ++i) {
      const Edge& edge = e.edges[static_cast<std::size_t>(i)];
      program.edges.push_back({place[static_cast<std::size_t>(edge.to)], edge.delay});
    }
  }
  program.steps.push_back({0, static_cast<std::int32_t>(program.edges.size())});
  return {};
}

Channels channelsOf(const Schedule& rows, const CostTable& costs, Sending sending) {
  const auto ends = [&](const MessageCost& m, std::size_t mirrored) {
    const auto& ranks = mirrored == 1 ? rows.placement.mirrorOfStage : rows.placement.rankOfStage;
    std::pair pair(ranks[m.from.index()], ranks[m.to.index()]);
    if (sending == Sending::OneChannel && pair.first > pair.second) std::swap(pair.first, pair.second);
    return pair;
  };
  const std::size_t directions = rows.placement.bidirectional() ? 2 : 1;
  std::vector<std::pair<Rank, Rank>> pairs;
  for (std::size_t d = 0; d < directions; ++d) {
    for (const MessageCost& m : costs.messages) pairs.push_back(ends(m, d));
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::erase_if(pairs, [](const auto& pair) { return pair.first == pair.second; });

  Channels channels;
  channels.count = static_cast<std::int32_t>(pairs.size());
  channels.ofMessage.assign(costs.messages.size(), {Channels::kNone, Channels::kNone});
  channels.held.assign(pairs.size(), sending != Sending::Overlapped || rows.lockstep);
  for (std::size_t i = 0; i < costs.messages.size(); ++i) {
    for (std::size_t d = 0; d < directions; ++d) {
      const auto pair = ends(costs.messages[i], d);
      if (pair.first == pair.second) continue;
      const auto channel = static_cast<std::size_t>(std::lower_bound(pairs.begin(), pairs.end(), pair) - pairs.begin());
      channels.ofMessage[i][d] = static_cast<std::int32_t>(channel);
      if (costs.messages[i].transfer > 0) channels.held[channel] = true;
    }
  }
  return channels;
}

}  // namespace pw
