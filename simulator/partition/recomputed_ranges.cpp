#include "simulator/partition/recomputed_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/state_changes.h"
#include "simulator/text/digits.h"

namespace pw {
namespace {

/// The module this node belongs to for this name: the name itself where it is a module, else its numbered child; empty for none.
std::string memberOf(const Node& node, const std::string& name, bool children) {
  for (const ModuleFrame& frame : node.modules) {
    if (!children && frame.path == name) return frame.path;
    if (children && frame.path.rfind(name + ".", 0) == 0 && isDigits(std::string_view(frame.path).substr(name.size() + 1)))
      return frame.path;
  }
  return {};
}

/// Returns whether there is such a module.
bool addRanges(const ModelGraph& graph, const std::string& name, std::vector<NodeRange>& ranges) {
  const std::size_t before = ranges.size();
  for (const bool children : {false, true}) {
    std::string current;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const std::string member = memberOf(graph.nodes[n], name, children);
      if (!member.empty() && member == current) {
        ranges.back().end = NodeId(n + 1);
      } else if (!member.empty()) {
        ranges.push_back({NodeId(n), NodeId(n + 1)});
      }
      current = member;
    }
    if (ranges.size() > before) return true;
  }
  return false;
}

/// Whether the node or one in its sub-graphs writes in place.
bool writes(const ModelGraph& graph, const Node& node) {
  return isInPlace(node) || std::any_of(node.inputs.begin(), node.inputs.end(), [&](const NamedArgument& a) {
           const auto* inner = std::get_if<GraphArg>(&a.value);
           if (inner == nullptr) return false;
           const auto& nodes = graph.subgraphs[inner->index].nodes;
           return std::any_of(nodes.begin(), nodes.end(), [&](const Node& n) { return writes(graph, n); });
         });
}

/// Whether it is a statistic that this norm moves, and that it reads for nothing else.
bool isMovedStatistic(const Node& node, const NamedArgument& argument) {
  return (argument.name == "running_mean" || argument.name == "running_var") && movesStatistics(node);
}

/// The values that a node changes in place: its first argument, a norm's running statistics, or everything that a sub-graph reads.
std::vector<ValueId> changedBases(const ModelGraph& graph, const Node& node) {
  std::vector<ValueId> bases;
  for (const NamedArgument& argument : node.inputs) {
    const auto* statistic = std::get_if<ValueId>(&argument.value);
    if (statistic != nullptr && isMovedStatistic(node, argument)) bases.push_back(viewedBase(graph, *statistic));
  }
  if (!writes(graph, node)) return bases;
  for (const ValueId v : readsOf(node)) {
    bases.push_back(viewedBase(graph, v));
    if (isInPlace(node)) break;
  }
  return bases;
}

/// Batch norm counts its batches beside moving its statistics.
bool isBatchCounter(const ModelGraph& graph, ValueId base) {
  constexpr std::string_view kCounter = "num_batches_tracked";
  return std::any_of(graph.buffers.begin(), graph.buffers.end(),
                     [&](const StateTensor& b) { return b.value == base && b.name.ends_with(kCounter); });
}

Answer<std::vector<NodeRange>> rangesOfModules(const ModelGraph& graph, const std::vector<std::string>& names) {
  std::vector<NodeRange> all;
  for (const std::string& name : names) {
    if (addRanges(graph, name, all)) continue;
    return Impossible{fmt::format("Model {} has no module {} to recompute; `pipewright inspect` lists its modules.", graph.name, name)};
  }
  std::sort(all.begin(), all.end(),
            [](const NodeRange& a, const NodeRange& b) { return std::pair(a.begin, b.end) < std::pair(b.begin, a.end); });
  std::vector<NodeRange> outer;
  for (const NodeRange& range : all) {
    if (outer.empty() || range.begin >= outer.back().end) {
      outer.push_back(range);
    } else {
      outer.back().end = std::max(outer.back().end, range.end);
    }
  }
  return outer;
}

/// What is recomputed of the whole graph, as far as it is known before the splits.
struct RangesOf {
  using Ranges = std::vector<NodeRange>;
  const ModelGraph& graph;

  Answer<Ranges> operator()(const RecomputeNone&) const { return Ranges(); }
  Answer<Ranges> operator()(const RecomputeAuto&) const { return Ranges(); }
  Answer<Ranges> operator()(const RecomputeFull&) const { return Ranges{{NodeId(0), NodeId(graph.nodes.size())}}; }
  Answer<Ranges> operator()(const RecomputeModules& modules) const { return rangesOfModules(graph, modules.names); }
};

}  // namespace

std::vector<NodeRange> moduleRanges(const ModelGraph& graph, const std::vector<std::string>& names) {
  return rangesOfModules(graph, names).orThrow();
}

std::vector<InPlaceChange> changesInPlace(const ModelGraph& graph) {
  std::set<ValueId> states, changed;
  for (const StateTensor* state : changedStates(graph)) changed.insert(state->value);
  for (const auto* all : {&graph.parameters, &graph.buffers}) {
    for (const StateTensor& state : *all) states.insert(state.value);
  }
  std::vector<InPlaceChange> changes;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    std::vector<ValueId> bases = changedBases(graph, graph.nodes[n]);
    std::erase_if(bases, [&](ValueId base) { return states.contains(base) && !changed.contains(base); });  // a sub-graph only reads it
    if (!bases.empty()) changes.push_back({NodeId(n), std::move(bases)});
  }
  return changes;
}

std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range) {
  return obstacleToRecompute(graph, range, changesInPlace(graph));
}

std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range, const std::vector<InPlaceChange>& changes) {
  if (isLayerChain(graph)) {
    for (auto n = range.begin.index(); n < range.end.index(); ++n) {
      const Node& layer = graph.nodes[n];
      if (!keptIfRecomputed(layer))
        return fmt::format("its layer table does not say what {} keeps then, as `{}`", graph.value(layer.outputs.front()).name,
                           kKeptIfRecomputed);
    }
    return std::nullopt;
  }
  const auto isInside = [&](ValueId base) {
    const Value& value = graph.value(base);
    return value.origin == ValueOrigin::Node && value.producer >= range.begin && value.producer < range.end;
  };
  std::set<ValueId> entering;
  for (auto n = range.begin.index(); n < range.end.index() && !changes.empty(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<ValueId> reads = readsOf(node);
    for (const NamedArgument& argument : node.inputs) {
      const auto* id = std::get_if<ValueId>(&argument.value);
      if (id != nullptr && isMovedStatistic(node, argument)) std::erase(reads, *id);
    }
    for (const ValueId v : reads) {
      if (const ValueId base = viewedBase(graph, v); !isInside(base)) entering.insert(base);
    }
  }
  for (const InPlaceChange& change : changes) {
    const Node& node = graph.node(change.node);
    const bool isBefore = change.node < range.begin;
    for (const ValueId base : change.bases) {
      // A later microbatch changes a state also where this one did so before the range.
      if (isBefore && graph.value(base).origin == ValueOrigin::Node) continue;
      if (!entering.contains(base) || isBatchCounter(graph, base)) continue;
      return fmt::format("{} ({}) changes {} in place, {} its forward runs again", operatorName(node), node.sourceLine,
                         graph.value(base).name,
                         change.node < range.end && !isBefore ? "so that it would change twice when" : "which would be different when");
    }
  }
  return std::nullopt;
}

void setRecompute(const ModelGraph& graph, Partition& partition, const Recompute& recompute) {
  const bool none = std::holds_alternative<RecomputeNone>(recompute);
  const auto no = trySetRecompute(graph, partition, recompute, none ? std::vector<InPlaceChange>{} : changesInPlace(graph));
  if (no) refuse(*no);
}

std::optional<Impossible> trySetRecompute(const ModelGraph& graph, Partition& partition, const Recompute& recompute,
                                          const std::vector<InPlaceChange>& changes) {
  const Answer<std::vector<NodeRange>> ranges = std::visit(RangesOf{graph}, recompute);
  if (!ranges) return ranges.refusal();
  for (StageSpec& stage : partition.stages) {
    stage.checkpoints.clear();
    for (const NodeRange& range : *ranges) {
      const NodeRange part{std::max(range.begin, stage.begin), std::min(range.end, stage.end)};
      if (part.begin < part.end) stage.checkpoints.push_back(part);
    }
    for (const NodeRange& range : stage.checkpoints) {
      if (const auto obstacle = obstacleToRecompute(graph, range, changes)) {
        return Impossible{fmt::format("Nodes {} to {} cannot be recomputed: {}; name other modules with --recompute, or omit it.",
                                      range.begin.value, range.end.value - 1, *obstacle)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace pw
