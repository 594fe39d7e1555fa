#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "schedules/error.h"
#include "simulator/graph_facts.h"
#include "simulator/partition.h"

namespace pw {
namespace {

std::vector<std::string> pathsOf(const Node& node) {
  std::vector<std::string> paths;
  for (const ModuleFrame& frame : node.modules) {
    if (!frame.path.empty()) paths.push_back(frame.path);
  }
  return paths;
}

bool isInside(const Node& node, const std::string& path) {
  return std::any_of(node.modules.begin(), node.modules.end(), [&](const ModuleFrame& f) { return f.path == path; });
}

std::string nodeName(const ModelGraph& graph, const Node& node) {
  return node.outputs.empty() ? node.target : graph.value(node.outputs.front()).name;
}

/// Bytes and number of values alive across each position, for values that would have to be sent.
struct Crossing {
  std::vector<Bytes> bytes;
  std::vector<int> values;
};

Crossing crossings(const ModelGraph& graph, const Bindings& bindings) {
  const std::vector<bool> recomputable = recomputableNodes(graph);
  std::vector<std::size_t> lastUse(graph.values.size(), 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : readsOf(graph.nodes[n])) lastUse[v.index()] = n;
  }
  for (const ValueId v : graph.outputs) lastUse[v.index()] = graph.nodes.size();
  std::vector<Bytes> bytes(graph.nodes.size() + 2, 0);
  std::vector<int> values(graph.nodes.size() + 2, 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (recomputable[n]) continue;
    for (const ValueId v : graph.nodes[n].outputs) {
      const auto& meta = graph.value(v).tensor;
      if (!meta || lastUse[v.index()] <= n) continue;
      Bytes size = 0;
      try {
        size = bytesOf(*meta, bindings);
      } catch (const Error&) {
        size = 0;  // data-dependent: cutting there is refused later, by name
      }
      bytes[n + 1] += size;
      bytes[lastUse[v.index()] + 1] -= size;
      values[n + 1] += 1;
      values[lastUse[v.index()] + 1] -= 1;
    }
  }
  for (std::size_t n = 1; n < bytes.size(); ++n) {
    bytes[n] += bytes[n - 1];
    values[n] += values[n - 1];
  }
  return {bytes, values};
}

/// Name of the boundary before node n: the outermost module that begins there, or the outermost that ended; empty if none.
std::string boundaryName(const Node& before, const Node& after) {
  for (const std::string& path : pathsOf(after)) {
    if (!isInside(before, path)) return path;
  }
  for (const std::string& path : pathsOf(before)) {
    if (!isInside(after, path)) return path + ":end";
  }
  return {};
}

int editDistance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitution, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearNames(const ModelGraph& graph, const std::string& wanted) {
  std::map<std::string, int> distances;
  for (const Node& node : graph.nodes) {
    for (const std::string& path : pathsOf(node)) {
      if (!distances.contains(path)) distances[path] = editDistance(wanted, path);
    }
  }
  std::vector<std::pair<int, std::string>> near;
  for (const auto& [path, distance] : distances) near.emplace_back(distance, path);
  std::sort(near.begin(), near.end());
  std::string list;
  for (std::size_t i = 0; i < near.size() && i < 4; ++i) list += (i == 0 ? "" : ", ") + near[i].second;
  return list;
}

/// Weight of each node under a balance; the last node also carries the loss.
std::vector<double> weights(const ModelGraph& graph, const Profile& profile, Balance by) {
  const std::size_t n = graph.nodes.size();
  std::vector<double> weight(n, 0);
  const auto addParameters = [&](double factor) {
    std::set<std::string> seen;
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
      addParameters(2);
      break;
    case Balance::Parameters: addParameters(1); break;
    case Balance::Layers: {
      std::map<std::string, std::set<std::string>> numbered;  // class → its modules whose name ends in a number
      for (const Node& node : graph.nodes) {
        for (const ModuleFrame& frame : node.modules) {
          const std::size_t dot = frame.path.rfind('.');
          if (dot != std::string::npos && dot + 1 < frame.path.size() && frame.path.find_first_not_of("0123456789", dot + 1) == std::string::npos) {
            numbered[frame.className].insert(frame.path);
          }
        }
      }
      const auto most = std::max_element(numbered.begin(), numbered.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
      std::set<std::string> seen;
      for (std::size_t i = 0; i < n; ++i) {
        if (most == numbered.end()) weight[i] = 1;
        for (const ModuleFrame& frame : graph.nodes[i].modules) {
          if (most != numbered.end() && most->second.contains(frame.path) && seen.insert(frame.path).second) weight[i] += 1;
        }
      }
      break;
    }
  }
  return weight;
}

/// Cuts `stages` ranges out of positions, minimising `cost` of the worst (first pass) or the summed crossing under a limit (second).
struct Dynamic {
  std::vector<std::size_t> positions;   // candidate begins, with 0 first and the number of nodes last
  std::vector<double> prefix;           // summed weight before each node
  std::vector<Bytes> crossing;          // at each position
  int stages = 1;

  [[nodiscard]] double weight(std::size_t i, std::size_t j) const { return prefix[positions[j]] - prefix[positions[i]]; }

  /// Smallest possible heaviest stage.
  [[nodiscard]] double bottleneck() const {
    const std::size_t k = positions.size();
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    std::vector<double> best(k, kInfinite);
    best[0] = 0;
    for (int s = 0; s < stages; ++s) {
      std::vector<double> next(k, kInfinite);
      for (std::size_t j = 1; j < k; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
          if (best[i] < kInfinite) next[j] = std::min(next[j], std::max(best[i], weight(i, j)));
        }
      }
      best = std::move(next);
    }
    return best[k - 1];
  }

  /// Fewest crossing bytes with no stage above `limit`; ties to earlier cuts.
  [[nodiscard]] std::vector<NodeId> cheapest(double limit) const {
    const std::size_t k = positions.size();
    constexpr Bytes kInfinite = std::numeric_limits<Bytes>::max() / 4;
    std::vector<std::vector<std::size_t>> from(static_cast<std::size_t>(stages), std::vector<std::size_t>(k, 0));
    std::vector<Bytes> best(k, kInfinite);
    best[0] = 0;
    for (auto& source : from) {
      std::vector<Bytes> next(k, kInfinite);
      for (std::size_t j = 1; j < k; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
          if (best[i] >= kInfinite || weight(i, j) > limit || best[i] + crossing[i] >= next[j]) continue;
          next[j] = best[i] + crossing[i];
          source[j] = i;
        }
      }
      best = std::move(next);
    }
    std::vector<NodeId> begins;
    std::size_t j = k - 1;
    for (std::size_t s = from.size(); s-- > 1;) {
      j = from[s][j];
      begins.emplace_back(positions[j]);
    }
    std::reverse(begins.begin(), begins.end());
    return begins;
  }
};

}  // namespace

std::vector<SplitPoint> splitPoints(const ModelGraph& graph, const Bindings& bindings) {
  const Crossing crossing = crossings(graph, bindings);
  const std::set<NodeId> markers(graph.splitMarkers.begin(), graph.splitMarkers.end());
  std::vector<SplitPoint> points;
  for (std::size_t n = 1; n < graph.nodes.size(); ++n) {
    const NodeId begin(n);
    std::string name = boundaryName(graph.nodes[n - 1], graph.nodes[n]);
    if (name.empty() && !markers.contains(begin)) continue;
    try {
      if (name.empty() || findSplit(graph, name) != begin) name = "@" + nodeName(graph, graph.nodes[n]);
    } catch (const UsageError&) {
      name = "@" + nodeName(graph, graph.nodes[n]);
    }
    if (markers.contains(begin)) name = "pipe_split (" + name + ")";
    points.push_back({begin, name, crossing.bytes[n], crossing.values[n]});
  }
  return points;
}

NodeId findSplit(const ModelGraph& graph, const std::string& name) {
  const bool atEnd = name.size() > 4 && name.substr(name.size() - 4) == ":end";
  const std::string path = atEnd ? name.substr(0, name.size() - 4) : name;
  std::size_t position = graph.nodes.size() + 1;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const bool found = !path.empty() && path[0] == '@' ? nodeName(graph, graph.nodes[n]) == path.substr(1) : isInside(graph.nodes[n], path);
    if (!found) continue;
    position = atEnd ? n + 1 : n;
    if (!atEnd) break;
  }
  if (position > graph.nodes.size()) {
    throw UsageError(fmt::format("Model {} has no module {} to split at; near names: {}.", graph.name, path, nearNames(graph, path)));
  }
  if (position == 0 || position == graph.nodes.size()) {
    throw UsageError(fmt::format("Splitting {} at {} would leave an empty stage; choose a module inside the model.", graph.name, name));
  }
  return NodeId(position);
}

std::vector<NodeId> balance(const ModelGraph& graph, const Profile& profile, int stages, Balance by) {
  if (profile.nodes.size() != graph.nodes.size()) throw UsageError(fmt::format("The profile does not belong to model {}; profile it again.", graph.name));
  if (stages == 1) return {};
  Bindings bindings = bindBatch(graph, profile.microbatch);
  const Crossing crossing = crossings(graph, bindings);
  Dynamic dynamic;
  dynamic.stages = stages;
  dynamic.positions.push_back(0);
  for (const SplitPoint& point : splitPoints(graph, bindings)) dynamic.positions.push_back(point.begin.index());
  if (static_cast<int>(dynamic.positions.size()) < stages) {
    dynamic.positions.clear();
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) dynamic.positions.push_back(n);
  }
  dynamic.positions.push_back(graph.nodes.size());
  if (static_cast<int>(dynamic.positions.size()) - 1 < stages) {
    throw UsageError(fmt::format("Model {} has {} operators and cannot be cut into {} stages.", graph.name, graph.nodes.size(), stages));
  }
  dynamic.prefix.assign(1, 0);
  for (const double w : weights(graph, profile, by)) dynamic.prefix.push_back(dynamic.prefix.back() + w);
  for (const std::size_t position : dynamic.positions) dynamic.crossing.push_back(crossing.bytes[position]);
  return dynamic.cheapest(dynamic.bottleneck() * 1.01 + 1e-9);
}

}  // namespace pw
