#include "simulator/partition/balancer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "schedules/error.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

/// The outermost module of a node whose name ends in a number, as blocks of a model do; null if none.
const ModuleFrame* numberedModule(const Node& node) {
  for (const ModuleFrame& frame : node.modules) {
    const std::string number = frame.path.substr(frame.path.rfind('.') + 1);  // the whole path where there is no dot
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos) return &frame;
  }
  return nullptr;
}

std::vector<double> layerWeights(const ModelGraph& graph) {
  std::map<std::string, std::set<std::string>> byClass;
  for (const Node& node : graph.nodes) {
    if (const ModuleFrame* layer = numberedModule(node)) byClass[layer->className].insert(layer->path);
  }
  if (byClass.empty()) return std::vector<double>(graph.nodes.size(), 1);
  const auto layers =
      std::max_element(byClass.begin(), byClass.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::set<std::string> seen;
  std::vector<double> weight;
  for (const Node& node : graph.nodes) {
    const ModuleFrame* layer = numberedModule(node);
    weight.push_back(layer != nullptr && layers->second.contains(layer->path) && seen.insert(layer->path).second ? 1 : 0);
  }
  return weight;
}

/// Weight of each node under a balance; the last node also carries the loss.
std::vector<double> weights(const ModelGraph& graph, const Profile& profile, Balance by) {
  const std::size_t n = graph.nodes.size();
  std::vector<double> weight(n, 0);
  const auto addParameters = [&](double factor) {
    std::unordered_set<std::string> seen;
    const auto parameterOf = indexByValue(graph, graph.parameters);
    for (std::size_t i = 0; i < n; ++i) {
      for (const ValueId v : readsOf(graph.nodes[i])) {
        const int p = parameterOf[v.index()];
        if (p < 0 || !seen.insert(storageOf(graph.parameters[static_cast<std::size_t>(p)])).second) continue;
        weight[i] += factor * static_cast<double>(bytesOf(*graph.value(v).tensor, {}));
      }
    }
  };
  switch (by) {
    case Balance::Time:
      for (std::size_t i = 0; i < n; ++i) weight[i] = static_cast<double>(profile.nodes[i].forward + profile.nodes[i].backward);
      weight[n - 1] += static_cast<double>(profile.loss.forward + profile.loss.backward);
      break;
    case Balance::Memory:
      for (std::size_t i = 0; i < n; ++i) weight[i] = static_cast<double>(std::max<Bytes>(0, profile.nodes[i].saved));
      addParameters(profile.sent.empty() ? 2 : 1);  // with their gradients; a layer table says all
      break;
    case Balance::Parameters: addParameters(1); break;
    case Balance::Layers: return layerWeights(graph);
  }
  return weight;
}

/// Cuts the nodes into `stages` ranges at some of the positions.
struct Dynamic {
  std::vector<std::size_t> positions;  // candidate begins, with 0 first and the number of nodes last
  std::vector<Bytes> crossing;         // at each position
  int stages = 1;
  /// What a stage weighs on one of its ranks.
  struct Scale {
    const std::vector<double>* prefix;  // summed weight before each node
    double slowness = 1;

    bool operator==(const Scale&) const = default;
  };
  std::vector<std::vector<Scale>> scales;  // by stage: the heaviest counts
  // Of limited stages: summed bytes before each node, and what each stage may hold; else empty.
  std::vector<Bytes> parameters, saved;
  std::vector<StageRoom> rooms;

  [[nodiscard]] bool hasRoom(std::size_t stage, std::size_t i, std::size_t j) const {
    if (rooms.empty() || rooms[stage].bytes == 0) return true;
    const auto between = [&](const std::vector<Bytes>& sums) { return sums[positions[j]] - sums[positions[i]]; };
    return rooms[stage].parameters * between(parameters) + rooms[stage].microbatches * between(saved) <= rooms[stage].bytes;
  }

  [[nodiscard]] double weight(std::size_t stage, std::size_t i, std::size_t j) const {
    double most = 0;
    for (const auto& [prefix, slowness] : scales[stage])
      most = std::max(most, ((*prefix)[positions[j]] - (*prefix)[positions[i]]) * slowness);
    return most;
  }

  /// Smallest possible heaviest stage, where all stages weigh alike. As a position moves right, what is before it gets heavier and what is
  /// after it lighter: the best place for the last stage's begin is where the two meet, and moves only forward with its end. Where stages
  /// differ, more nodes may make the heaviest of those before lighter: a slow stage need not take a heavy node then.
  [[nodiscard]] double bottleneck() const {
    const std::size_t k = positions.size();
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    std::vector<double> best(k, kInfinite);
    best[0] = 0;
    for (std::size_t s = 0; s < static_cast<std::size_t>(stages); ++s) {
      std::vector<double> next(k, kInfinite);
      std::size_t i = s;  // fewer positions do not make s stages
      for (std::size_t j = s + 1; j < k; ++j) {
        while (i + 1 < j && std::max(best[i + 1], weight(s, i + 1, j)) <= std::max(best[i], weight(s, i, j))) ++i;
        next[j] = std::max(best[i], weight(s, i, j));
      }
      best = std::move(next);
    }
    return best[k - 1];
  }

  [[nodiscard]] bool fits(std::size_t stage, std::size_t i, std::size_t j, double limit) const {
    return weight(stage, i, j) <= limit && hasRoom(stage, i, j);
  }

  /// By stage, and one more for the end: where it begins at the earliest if all from there on are as long as they can be.
  [[nodiscard]] std::vector<std::size_t> earliest(double limit) const {
    std::vector<std::size_t> begins(static_cast<std::size_t>(stages) + 1, positions.size() - 1);
    for (std::size_t s = begins.size() - 1; s-- > 0;) {
      std::size_t low = 0, high = begins[s + 1];  // where not even the last node before `high` fits, the stage begins after it
      while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (fits(s, middle, begins[s + 1], limit))
          high = middle;
        else
          low = middle + 1;
      }
      begins[s] = low;
    }
    return begins;
  }

  /// Whether stages with room make a cut with none above `limit`. Only begins are looked at from which the rest can reach the end.
  [[nodiscard]] bool isPossible(double limit) const {
    const std::size_t k = positions.size();
    const std::vector<std::size_t> begins = earliest(limit);
    if (begins.front() > 0) return false;
    std::vector<std::uint8_t> reached(k, 0), next(k, 0);  // by the stages so far
    reached[0] = 1;
    std::size_t from = 0, to = 0;  // all that are reached are there
    for (std::size_t s = 0; s < static_cast<std::size_t>(stages); ++s) {
      const std::size_t begin = std::max(from + 1, begins[s + 1]);
      std::size_t first = from, added = from, count = 0, last = 0;  // of the begins in [first, added), those that are reached
      for (std::size_t j = begin; j < k; ++j) {
        for (; added < j && added <= to; ++added) count += reached[added];
        for (; first < added && !fits(s, first, j, limit); ++first) count -= reached[first];
        if (count == 0 && added > to) break;
        next[j] = count > 0 ? 1 : 0;
        last = j;
      }
      if (last < begin) return false;
      for (std::size_t i = from; i <= to; ++i) reached[i] = 0;
      reached.swap(next);
      from = begin;
      to = last;
    }
    return reached[k - 1] != 0;
  }

  [[nodiscard]] bool areAlike() const {
    return std::ranges::all_of(scales, [&](const auto& stage) { return stage == scales.front(); });
  }

  /// Smallest possible heaviest stage where stages have rooms, or weigh differently: by bisection; infinite where no cut has room.
  [[nodiscard]] double bottleneckWithin() const {
    constexpr int kHalvings = 40;
    double low = 0, high = 0;
    for (const auto& stage : scales) {
      for (const auto& [prefix, slowness] : stage) high = std::max(high, prefix->back() * slowness);
    }
    if (!isPossible(high)) return std::numeric_limits<double>::infinity();
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (isPossible(middle) ? high : low) = middle;
    }
    return high;
  }

  /// Fewest crossing bytes with no stage above `limit`; ties to earlier cuts. Of the begins that the limit allows, a window that moves
  /// forward, the cheapest stands first in a queue.
  [[nodiscard]] std::vector<NodeId> cheapest(double limit) const {
    const std::size_t k = positions.size();
    constexpr Bytes kInfinite = std::numeric_limits<Bytes>::max() / 4;
    struct Row {
      std::size_t first = 0;               ///< end of the stage
      std::vector<std::uint32_t> sources;  ///< by end from there on: where the stage begins
    };
    std::vector<Row> rows(static_cast<std::size_t>(stages));
    const std::vector<std::size_t> reaching = earliest(limit);
    std::vector<Bytes> best(k, kInfinite), next(k, kInfinite);
    best[0] = 0;
    std::size_t from = 0, to = 0;  // all begins that are reached are there
    for (std::size_t s = 0; s < rows.size(); ++s) {
      Row& row = rows[s];
      row.first = std::max(from + 1, reaching[s + 1]);
      std::deque<std::size_t> queue;  // begins, ascending, with ascending bytes
      const auto cost = [&](std::size_t i) { return best[i] + crossing[i]; };
      for (std::size_t j = row.first, added = from; j < k; ++j) {
        for (; added < j && added <= to; ++added) {
          if (best[added] >= kInfinite) continue;
          while (!queue.empty() && cost(queue.back()) > cost(added)) queue.pop_back();
          queue.push_back(added);
        }
        while (!queue.empty() && !fits(s, queue.front(), j, limit)) queue.pop_front();
        if (queue.empty() && added > to) break;
        row.sources.push_back(queue.empty() ? 0 : static_cast<std::uint32_t>(queue.front()));
        next[j] = queue.empty() ? kInfinite : cost(queue.front());
      }
      assert(!row.sources.empty());
      for (std::size_t i = from; i <= to; ++i) best[i] = kInfinite;
      best.swap(next);
      from = row.first;
      to = row.first + row.sources.size() - 1;
    }
    std::vector<NodeId> begins;
    std::size_t j = k - 1;
    for (std::size_t s = rows.size(); s-- > 1;) {
      j = rows[s].sources[j - rows[s].first];
      begins.emplace_back(positions[j]);
    }
    std::reverse(begins.begin(), begins.end());
    return begins;
  }
};

}  // namespace

namespace {

/// Before each, and of all.
std::vector<double> summed(const std::vector<double>& weights) {
  std::vector<double> sums(1, 0);
  for (const double weight : weights) sums.push_back(sums.back() + weight);
  return sums;
}

/// What each stage weighs by time, with these sums.
std::vector<std::vector<Dynamic::Scale>> scalesOf(const std::map<int, std::vector<double>>& times, std::size_t stages,
                                                  const StageSpeeds& speeds) {
  std::vector<std::vector<Dynamic::Scale>> scales;
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<Dynamic::Scale>& stage = scales.emplace_back();
    for (const RankSpeed& speed : speeds.empty() ? std::vector{RankSpeed{}} : speeds[s])
      stage.push_back({&times.at(speed.costsOf), speed.slowness});
  }
  return scales;
}

}  // namespace

Balancer::Balancer(const ModelGraph& graph, const Profile& profile) : graph_(graph), profile_(profile) {
  if (profile.nodes.size() != graph.nodes.size())
    throw UsageError(fmt::format("The profile does not belong to model {}; profile it again.", graph.name));
  places_ = splitPlaces(graph, bindBatch(graph, profile.microbatch));
  times_.emplace(RankSpeed{}.costsOf, summed(weights(graph, profile, Balance::Time)));
  std::set<const Profile*> known;
  for (std::size_t r = 0; r < profile.topology.ranks.size(); ++r) {
    const Profile* const own = profile.topology.ranks[r].own.costs.get();
    if (own != nullptr && known.insert(own).second) times_.emplace(static_cast<int>(r), summed(weights(graph, *own, Balance::Time)));
  }
  const std::vector<double> parameters = weights(graph, profile, Balance::Parameters);
  parameters_.assign(1, 0);
  saved_.assign(1, 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    parameters_.push_back(parameters_.back() + static_cast<Bytes>(parameters[n]));
    saved_.push_back(saved_.back() + std::max<Bytes>(0, profile.nodes[n].saved));
  }
}

Answer<std::vector<NodeId>> Balancer::begins(int stages, Balance by, const StageSpeeds& speeds) const {
  if (stages < 1) throw UsageError(fmt::format("{} stages were requested; use at least 1.", stages));
  if (stages == 1) return std::vector<NodeId>();
  const auto needed = static_cast<std::size_t>(stages) - 1;
  std::vector<std::size_t> places = places_.apart.size() < needed ? places_.points : places_.apart;
  const std::vector<double> weight = weights(graph_, profile_, by);
  if (by == Balance::Layers) {
    std::vector<std::size_t> starts;
    std::copy_if(places.begin(), places.end(), std::back_inserter(starts), [&](std::size_t n) { return weight[n] > 0; });
    if (starts.size() >= needed) places = std::move(starts);  // else layers must be cut
  }
  if (places.size() < needed) places = places_.free;
  if (places.size() < needed) {
    return Impossible{
        fmt::format("Model {} has {} places to split at and cannot be cut into {} stages.", graph_.name, places.size(), stages)};
  }
  Dynamic dynamic;
  dynamic.stages = stages;
  const std::vector<double> sums = summed(weight);
  if (by == Balance::Time)
    dynamic.scales = scalesOf(times_, static_cast<std::size_t>(stages), speeds);
  else
    dynamic.scales.assign(static_cast<std::size_t>(stages), {{&sums, 1}});
  dynamic.positions.push_back(0);
  dynamic.positions.insert(dynamic.positions.end(), places.begin(), places.end());
  dynamic.positions.push_back(graph_.nodes.size());
  for (const std::size_t position : dynamic.positions) dynamic.crossing.push_back(places_.crossing[position]);
  return dynamic.cheapest((dynamic.areAlike() ? dynamic.bottleneck() : dynamic.bottleneckWithin()) * 1.01 + 1e-9);
}

std::optional<std::vector<NodeId>> Balancer::beginsWithin(const std::vector<StageRoom>& rooms, const StageSpeeds& speeds) const {
  Dynamic dynamic;
  dynamic.stages = static_cast<int>(rooms.size());
  dynamic.rooms = rooms;
  dynamic.scales = scalesOf(times_, rooms.size(), speeds);
  dynamic.positions.push_back(0);
  dynamic.positions.insert(dynamic.positions.end(), places_.points.begin(), places_.points.end());
  dynamic.positions.push_back(graph_.nodes.size());
  dynamic.parameters = parameters_;
  dynamic.saved = saved_;
  for (const std::size_t position : dynamic.positions) dynamic.crossing.push_back(places_.crossing[position]);
  const double bottleneck = dynamic.bottleneckWithin();
  if (std::isinf(bottleneck)) return std::nullopt;
  return dynamic.cheapest(bottleneck * 1.01 + 1e-9);
}

std::vector<NodeId> balancedSplits(const ModelGraph& graph, const Profile& profile, int stages, Balance by, const StageSpeeds& speeds) {
  return Balancer(graph, profile).begins(stages, by, speeds).orThrow();
}

}  // namespace pw
