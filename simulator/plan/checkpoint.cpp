#include "simulator/plan/checkpoint.h"
#include "simulator/plan/excess.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/plan/model_costs.h"
#include "simulator/plan/stage_costs.h"
#include "simulator/step/compile.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/program.h"

namespace pw {
namespace {

bool isNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// The module this node belongs to for this name: the name itself where it is a module, else its numbered child; empty for none.
std::string memberOf(const Node& node, const std::string& name, bool children) {
  for (const ModuleFrame& frame : node.modules) {
    if (!children && frame.path == name) return frame.path;
    if (children && frame.path.rfind(name + ".", 0) == 0 && isNumber(std::string_view(frame.path).substr(name.size() + 1)))
      return frame.path;
  }
  return {};
}

void addRanges(const ModelGraph& graph, const std::string& name, std::vector<NodeRange>& ranges) {
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
    if (ranges.size() > before) return;
  }
  throw UsageError(fmt::format("Model {} has no module {} to recompute; `pipewright inspect` lists its modules.", graph.name, name));
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

/// The values that a node changes in place: its first argument, or everything that a sub-graph reads.
std::vector<ValueId> changedBases(const ModelGraph& graph, const Node& node) {
  std::vector<ValueId> bases;
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

NodeRange wholeOf(const StageSpec& stage) { return {stage.begin, stage.end}; }

/// What is recomputed of the whole graph, as far as it is known before the splits.
struct RangesOf {
  const ModelGraph& graph;

  std::vector<NodeRange> operator()(const RecomputeNone&) const { return {}; }
  std::vector<NodeRange> operator()(const RecomputeAuto&) const { return {}; }
  std::vector<NodeRange> operator()(const RecomputeFull&) const { return {{NodeId(0), NodeId(graph.nodes.size())}}; }
  std::vector<NodeRange> operator()(const RecomputeModules& modules) const { return moduleRanges(graph, modules.names); }
};

}  // namespace

std::vector<NodeRange> moduleRanges(const ModelGraph& graph, const std::vector<std::string>& names) {
  std::vector<NodeRange> all;
  for (const std::string& name : names) addRanges(graph, name, all);
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

std::vector<InPlaceChange> changesInPlace(const ModelGraph& graph) {
  std::vector<InPlaceChange> changes;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    std::vector<ValueId> bases = changedBases(graph, graph.nodes[n]);
    if (!bases.empty()) changes.push_back({NodeId(n), std::move(bases)});
  }
  return changes;
}

std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range) {
  return obstacleToRecompute(graph, range, changesInPlace(graph));
}

std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range, const std::vector<InPlaceChange>& changes) {
  if (isLayerChain(graph)) return "a layer table does not say what is kept then";
  const auto first = std::ranges::lower_bound(changes, range.begin, {}, &InPlaceChange::node);
  if (first == changes.end()) return std::nullopt;
  const auto isInside = [&](ValueId base) {
    const Value& value = graph.value(base);
    return value.origin == ValueOrigin::Node && value.producer >= range.begin && value.producer < range.end;
  };
  std::set<ValueId> entering;
  for (auto n = range.begin.index(); n < range.end.index(); ++n) {
    for (const ValueId v : readsOf(graph.nodes[n])) {
      if (const ValueId base = viewedBase(graph, v); !isInside(base)) entering.insert(base);
    }
  }
  for (auto change = first; change != changes.end(); ++change) {
    const Node& node = graph.node(change->node);
    for (const ValueId base : change->bases) {
      if (!entering.contains(base) || isBatchCounter(graph, base)) continue;
      return fmt::format("{} ({}) changes {} in place, {} its forward runs again", operatorName(node), node.sourceLine,
                         graph.value(base).name,
                         change->node < range.end ? "so that it would change twice when" : "which would be different when");
    }
  }
  return std::nullopt;
}

void setCheckpoints(const ModelGraph& graph, Partition& partition, const Recompute& recompute) {
  const bool none = std::holds_alternative<RecomputeNone>(recompute);
  setCheckpoints(graph, partition, recompute, none ? std::vector<InPlaceChange>{} : changesInPlace(graph));
}

void setCheckpoints(const ModelGraph& graph, Partition& partition, const Recompute& recompute, const std::vector<InPlaceChange>& changes) {
  const std::vector<NodeRange> ranges = std::visit(RangesOf{graph}, recompute);
  for (StageSpec& stage : partition.stages) {
    stage.checkpoints.clear();
    for (const NodeRange& range : ranges) {
      const NodeRange part{std::max(range.begin, stage.begin), std::min(range.end, stage.end)};
      if (part.begin < part.end) stage.checkpoints.push_back(part);
    }
    for (const NodeRange& range : stage.checkpoints) {
      if (const auto obstacle = obstacleToRecompute(graph, range, changes)) {
        throw UsageError(fmt::format("Nodes {} to {} cannot be recomputed: {}; remove that module from --recompute.", range.begin.value,
                                     range.end.value - 1, *obstacle));
      }
    }
  }
}

CostTable costsOf(const PlanSetting& setting, const Partition& partition) {
  CostTable costs = setting.model != nullptr
                        ? setting.model->costTable(partition, setting.schedule.placement, setting.replicas)
                        : costTable(setting.graph, partition, setting.profile, setting.schedule.placement, setting.replicas);
  addOptimizerState(costs, stateCopies(setting.optimizer), setting.optimizerShards);
  requireSummable(costs, shapeOf(setting.schedule));
  return costs;
}

std::vector<Bytes> peaksOf(const PlanSetting& setting, const Partition& partition) {
  const CostTable costs = costsOf(setting, partition);
  return setting.compiled != nullptr ? setting.compiled->peaks(costs) : compile(setting.schedule, costs).peakBytes;
}

bool recomputeToFit(const PlanSetting& setting, Partition& partition, const std::vector<Bytes>& limits) {
  const std::vector<InPlaceChange> changes = setting.model != nullptr ? setting.model->changes() : changesInPlace(setting.graph);
  for (StageSpec& stage : partition.stages) stage.checkpoints.clear();
  CostTable costs = costsOf(setting, partition);
  Partition all = partition;
  for (StageSpec& stage : all.stages) stage.checkpoints = {wholeOf(stage)};
  const std::vector<StageCost> again = costsOf(setting, all).stages;
  std::vector<std::pair<double, Stage>> candidates;  // most saved for its time first
  for (std::size_t s = 0; s < again.size(); ++s) {
    const StageCost& kept = costs.stages[s];
    const Bytes saved = kept.activationBytes - again[s].activationBytes;
    if (saved <= 0 || obstacleToRecompute(setting.graph, wholeOf(partition.stages[s]), changes)) continue;
    candidates.emplace_back(-static_cast<double>(saved) / static_cast<double>(std::max<Ns>(1, kept.forward)), Stage(s));
  }
  std::sort(candidates.begin(), candidates.end());
  std::optional<CompiledRows> own;
  if (setting.compiled == nullptr) own.emplace(setting.schedule);
  CompiledRows& compiled = own ? *own : *setting.compiled;
  const Placement& placement = setting.schedule.placement;
  std::vector<Bytes> peaks = compiled.peaks(costs);
  while (true) {
    std::size_t over = 0;
    while (over < peaks.size() && (over >= limits.size() || excessOf(peaks[over], limits[over]) == 0)) ++over;
    if (over == peaks.size()) return true;
    const Rank rank(over);
    const auto chosen = std::find_if(candidates.begin(), candidates.end(), [&](const auto& c) { return placement.holds(rank, c.second); });
    if (chosen == candidates.end()) return false;
    const Stage stage = chosen->second;
    partition.stages[stage.index()].checkpoints = {wholeOf(partition.stages[stage.index()])};
    costs.stages[stage.index()] = again[stage.index()];  // nothing else depends on what it recomputes
    candidates.erase(chosen);
    std::vector<Rank> holders;
    for (std::size_t r = 0; r < peaks.size(); ++r) {
      if (placement.holds(Rank(r), stage)) holders.emplace_back(r);
    }
    compiled.updatePeaks(costs, holders, peaks);
  }
}

}  // namespace pw
