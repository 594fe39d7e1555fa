#include "simulator/partition/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "schedules/error.h"
#include "schedules/names.h"
#include "simulator/model/flowing_call.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/recomputed_ranges.h"

namespace pw {
namespace {

constexpr std::string_view kMarker = "pipe_split (";

bool isInside(const Node& node, const std::string& path) {
  return std::any_of(node.modules.begin(), node.modules.end(), [&](const ModuleFrame& f) { return f.path == path; });
}

/// Node ranges of modules and the names of nodes: the names a split can have.
class Names {
 public:
  explicit Names(const ModelGraph& graph) : nodes_(graph.nodes.size()) {
    if (isLayerChain(graph)) addLayers(graph);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ModuleFrame& frame : graph.nodes[n].modules) {
        if (!frame.path.empty()) modules_.try_emplace(frame.path, n, n).first->second.second = n;
      }
      for (const ValueId output : graph.nodes[n].outputs) {
        if (!graph.value(output).name.empty()) places_.emplace("@" + graph.value(output).name, n);
      }
    }
    for (const auto& [path, range] : modules_) {
      places_.emplace(path, range.first);
      places_.emplace(path + ":end", range.second + 1);
    }
  }

  /// Where a stage of this name begins; may be 0 or the number of nodes.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& name) const {
    if (const auto found = places_.find(name); found != places_.end()) return found->second;
    const char* const end = name.data() + name.size();
    std::size_t number = 0;  // `@12`
    if (name.size() < 2 || name[0] != '@') return std::nullopt;
    const auto [read, failure] = std::from_chars(name.data() + 1, end, number);
    return failure == std::errc() && read == end && number < nodes_ ? std::optional(number) : std::nullopt;
  }

  /// Name of the place before node n by the node itself.
  [[nodiscard]] std::string nodeName(const ModelGraph& graph, std::size_t n) const {
    const auto& outputs = graph.nodes[n].outputs;
    const std::string name = outputs.empty() ? std::string() : "@" + graph.value(outputs.front()).name;
    return find(name) == n ? name : fmt::format("@{}", n);
  }

  /// `@7` where that is node 7, or else `name`.
  [[nodiscard]] std::string positionOr(std::size_t n, const std::string& name) const {
    std::string position = fmt::format("@{}", n);
    return find(position) == n ? position : name;
  }

  [[nodiscard]] const std::unordered_map<std::string, std::pair<std::size_t, std::size_t>>& modules() const { return modules_; }

 private:
  /// A layer's own name comes before what modules are called.
  void addLayers(const ModelGraph& graph) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) places_.emplace(graph.value(graph.nodes[n].outputs.front()).name, n);
  }

  std::size_t nodes_;
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>> modules_;  // path → first and last node
  std::unordered_map<std::string, std::size_t> places_;
};

/// What is before a node: the outermost module that begins there, or the outermost that ended; null if there is neither.
struct Boundary {
  const ModuleFrame* frame = nullptr;
  bool ended = false;

  [[nodiscard]] std::string name() const { return frame == nullptr ? std::string() : frame->path + (ended ? ":end" : ""); }
};

Boundary boundaryBetween(const Node& before, const Node& after) {
  for (const ModuleFrame& frame : after.modules) {
    if (!frame.path.empty() && !isInside(before, frame.path)) return {&frame, false};
  }
  for (const ModuleFrame& frame : before.modules) {
    if (!frame.path.empty() && !isInside(after, frame.path)) return {&frame, true};
  }
  return {};
}

/// Nothing for what is no tensor, and for sizes that depend on data.
std::optional<Bytes> bytesOnceKnown(const Value& value, const Bindings& bindings) {
  if (!extentsOf(value, bindings)) return std::nullopt;
  return bytesOf(*value.tensor, bindings);
}

/// What would cross before each node, for values that would have to be sent, and whether a stage may begin there.
struct Crossing {
  std::vector<Bytes> bytes;
  std::vector<int> values;
  std::vector<int> obstacles;
  std::size_t firstBound = 0;  ///< the first node that could not be computed anywhere
};

Crossing crossings(const ModelGraph& graph, const Bindings& bindings) {
  const std::vector<bool> recomputable = recomputableNodes(graph), computed = computedNumbers(graph);
  const std::size_t end = graph.nodes.size();
  std::vector<std::size_t> lastUse(graph.values.size(), 0);
  for (std::size_t n = 0; n < end; ++n) {
    if (isAssertion(graph.nodes[n])) continue;
    for (const ValueId v : readsOf(graph.nodes[n])) lastUse[v.index()] = n;
  }
  for (const ValueId v : graph.outputs) lastUse[v.index()] = end;
  Crossing crossing{std::vector<Bytes>(end + 2, 0), std::vector<int>(end + 2, 0), std::vector<int>(end + 2, 0),
                    static_cast<std::size_t>(std::ranges::find(recomputable, false) - recomputable.begin())};
  const auto add = [](auto& counts, std::size_t first, std::size_t last, auto amount) {  // to positions first..last
    counts[first] += amount;
    counts[last + 1] -= amount;
  };
  for (std::size_t n = 0; n < end; ++n) {
    if (recomputable[n]) continue;
    for (const ValueId v : graph.nodes[n].outputs) {
      const Value& value = graph.value(v);
      if ((value.symbolic && !computed[v.index()]) || lastUse[v.index()] <= n) continue;
      add(crossing.values, n + 1, lastUse[v.index()], 1);
      if (const auto bytes = bytesOnceKnown(value, bindings))
        add(crossing.bytes, n + 1, lastUse[v.index()], *bytes);
      else
        add(crossing.obstacles, n + 1, lastUse[v.index()], 1);
    }
  }
  for (const KeptTogether& group : keptTogether(graph)) add(crossing.obstacles, group.first.index() + 1, group.last.index(), 1);
  for (std::size_t n = 1; n < end + 2; ++n) {
    crossing.bytes[n] += crossing.bytes[n - 1];
    crossing.values[n] += crossing.values[n - 1];
    crossing.obstacles[n] += crossing.obstacles[n - 1];
  }
  return crossing;
}

std::string nearNames(const Names& names, const std::string& wanted) {
  std::vector<std::pair<int, std::string>> near;
  for (const auto& [path, range] : names.modules()) near.emplace_back(editDistance(wanted, path), path);
  std::sort(near.begin(), near.end());
  std::string list;
  for (std::size_t i = 0; i < near.size() && i < 4; ++i) list += (i == 0 ? "" : ", ") + near[i].second;
  return list;
}

/// A node before which the model may be split, and what is there.
struct Place {
  std::size_t node = 0;
  Boundary boundary;
  bool isMarker = false;
};

std::vector<Place> placesOf(const ModelGraph& graph, const Crossing& crossing) {
  const std::set<NodeId> markers(graph.splitMarkers.begin(), graph.splitMarkers.end());
  const bool layers = isLayerChain(graph);
  std::vector<Place> places;
  for (std::size_t n = 1; n < graph.nodes.size(); ++n) {
    if (crossing.obstacles[n] > 0) continue;
    const bool isMarker = !markers.empty() && markers.contains(NodeId(n));
    const Boundary boundary = layers ? Boundary() : boundaryBetween(graph.nodes[n - 1], graph.nodes[n]);
    if (!layers && boundary.frame == nullptr && !isMarker) continue;
    // The stages after it would compute all of that again, so that a stage before it has nothing to do.
    if (n <= crossing.firstBound && !isMarker) continue;
    places.push_back({n, boundary, isMarker});
  }
  return places;
}

}  // namespace

std::vector<SplitPoint> splitPoints(const ModelGraph& graph, const Bindings& bindings) {
  const Crossing crossing = crossings(graph, bindings);
  std::vector<SplitPoint> points;
  std::optional<Names> names;  // of a layer table only where they are needed
  if (isLayerChain(graph)) {   // whose names are unique
    for (const Place& place : placesOf(graph, crossing)) {
      const std::size_t n = place.node;
      std::string name = graph.value(graph.nodes[n].outputs.front()).name;
      if (name.find(',') != std::string::npos) {  // which separates names
        if (!names) names.emplace(graph);
        name = names->positionOr(n, name);
      }
      points.push_back({NodeId(n), std::move(name), crossing.bytes[n], crossing.values[n]});
    }
    return points;
  }
  names.emplace(graph);
  for (const auto& [n, boundary, isMarker] : placesOf(graph, crossing)) {
    std::string name = boundary.name();
    if (names->find(name) != n) name = names->nodeName(graph, n);
    if (isMarker) name = fmt::format("{}{})", kMarker, name);
    points.push_back({NodeId(n), std::move(name), crossing.bytes[n], crossing.values[n]});
  }
  return points;
}

SplitPlaces splitPlaces(const ModelGraph& graph, const Bindings& bindings) {
  Crossing crossing = crossings(graph, bindings);
  SplitPlaces places;
  std::vector<int> changesAcross(graph.nodes.size() + 1, 0);
  for (const InPlaceChange& change : changesInPlace(graph)) {
    for (const ValueId base : change.bases) {
      if (graph.value(base).origin != ValueOrigin::Node) continue;
      ++changesAcross[graph.value(base).producer.index() + 1];
      --changesAcross[change.node.index() + 1];
    }
  }
  std::partial_sum(changesAcross.begin(), changesAcross.end(), changesAcross.begin());
  for (const Place& place : placesOf(graph, crossing)) {
    places.points.push_back(place.node);
    if (changesAcross[place.node] == 0) places.apart.push_back(place.node);
  }
  for (std::size_t n = 1; n < graph.nodes.size(); ++n) {
    if (crossing.obstacles[n] == 0) places.free.push_back(n);
  }
  places.crossing = std::move(crossing.bytes);
  return places;
}

std::vector<NodeId> placesFor(const ModelGraph& graph, const Bindings& bindings, int stages) {
  const SplitPlaces all = splitPlaces(graph, bindings);
  const std::vector<std::size_t>& enough = std::ssize(all.points) + 1 >= stages ? all.points : all.free;
  std::vector<NodeId> places;
  for (const std::size_t node : enough) places.emplace_back(node);
  return places;
}

NodeId findSplit(const ModelGraph& graph, const std::string& name) {
  const bool isMarker = name.rfind(kMarker, 0) == 0 && name.back() == ')';
  const std::string place = isMarker ? name.substr(kMarker.size(), name.size() - kMarker.size() - 1) : name;
  const Names names(graph);
  const auto position = names.find(place);
  if (!position) {
    throw UsageError(fmt::format("Model {} has no {} {} to split at; near names: {}.", graph.name,
                                 place.rfind('@', 0) == 0 ? "node" : "module", place, nearNames(names, place)));
  }
  if (*position == 0 || *position == graph.nodes.size()) {
    throw UsageError(fmt::format("Splitting {} at {} would leave an empty stage; choose a module inside the model.", graph.name, name));
  }
  return NodeId(*position);
}

Balance parseBalance(std::string_view name) {
  if (const auto balance = valueNamed<Balance>(name)) return *balance;
  throw UsageError(fmt::format("Unknown balance `{}`; known are {}.", name, namesOf<Balance>(", ")));
}

}  // namespace pw
