#include "simulator/plan/memory.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/balancer.h"
#include "simulator/partition/recomputed_ranges.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/sharing.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

/// Whether the last part of a module's path is a number.
bool isNumbered(const std::string& path) {
  const std::string last = path.substr(path.rfind('.') + 1);
  return !last.empty() && std::ranges::all_of(last, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string moduleOf(const Node& node) {
  for (const ModuleFrame& frame : node.modules) {
    if (isNumbered(frame.path)) return frame.path;
  }
  const auto outermost = std::ranges::find_if(node.modules, [](const ModuleFrame& frame) { return !frame.path.empty(); });
  return outermost == node.modules.end() ? std::string() : outermost->path;
}

bool isIn(const std::vector<NodeRange>& ranges, NodeId node) {
  return std::ranges::any_of(ranges, [&](const NodeRange& range) { return range.begin <= node && node < range.end; });
}

/// Peaks and the step under these costs.
struct Predicted {
  std::vector<Bytes> peaks;
  Ns step = 0;
};
Predicted predicted(CompiledRows& compiled, const CostTable& costs) {
  Predicted result{compiled.peaks(costs), 0};
  const Program& program = compiled.timed(costs);
  Times times;
  execute(program, times);
  result.step = stepOf(compiled.rows(), costs, program, times);
  return result;
}

/// The same of a whole plan.
Predicted predictedPlan(const PlanRequest& request, ModelCosts& model, CompiledRows& rows) {
  CostTable costs = price(request, model, rows).costs;
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, rows.rows().placement));
  return predicted(rows, costs);
}

}  // namespace

std::vector<ModuleMemory> memoryByModule(const ModelGraph& graph, const StageSpec& stage, const Profile& profile) {
  std::map<ValueId, Bytes> unread;  // the stage's parameters that no operator before has read
  for (const std::size_t p : stage.parameters) {
    const ValueId value = graph.parameters.at(p).value;
    unread[value] = bytesOf(*graph.value(value).tensor, {});
  }
  std::vector<ModuleMemory> modules;
  std::map<std::string, std::size_t> known;
  for (NodeId n = stage.begin; n < stage.end; ++n.value) {
    const Node& node = graph.node(n);
    ModuleMemory found{moduleOf(node), 0, 0};
    if (!isIn(stage.checkpoints, n)) found.activations = profile.nodes[n.index()].saved;
    for (const ValueId read : readsOf(node)) {
      const auto parameter = unread.find(read);
      if (parameter == unread.end()) continue;
      found.parameters += parameter->second;
      unread.erase(parameter);
    }
    const auto [entry, isNew] = known.try_emplace(found.module, modules.size());
    if (isNew) modules.push_back({found.module, 0, 0});
    modules[entry->second].activations += found.activations;
    modules[entry->second].parameters += found.parameters;
  }
  std::erase_if(modules, [](const ModuleMemory& m) { return m.activations == 0 && m.parameters == 0; });
  return modules;
}

PlanMemory memoryOf(const PlanRequest& request, ModelCosts& model, const Schedule& rows, const Partition& partition) {
  CompiledRows compiled(rows);
  const ModelGraph& graph = model.graph();
  const auto setting = [&](int shards) {
    return PlanSetting{graph, model.profile(), rows, request.replicas, request.optimizer, shards, &model, &compiled};
  };
  const PlanSetting own = setting(optimizerShards(request, rows.placement));
  const CostTable costs = costsOf(own, partition);
  const Predicted now = predicted(compiled, costs);
  PlanMemory memory{memoryOf(rows, costs), {}, now.step, {}};
  for (const StageSpec& stage : partition.stages) memory.modules.push_back(memoryByModule(graph, stage, model.profile()));

  const auto consider = [&](MemorySaving saving, const CostTable& changed) {
    const Predicted then = predicted(compiled, changed);
    saving.step = then.step;
    for (std::size_t r = 0; r < then.peaks.size(); ++r) {
      if (now.peaks[r] - then.peaks[r] <= saving.freed) continue;
      saving.rank = Rank(r);
      saving.freed = now.peaks[r] - then.peaks[r];
    }
    if (saving.freed > 0) memory.savings.push_back(std::move(saving));
  };
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const StageSpec& stage = partition.stages[s];
    if (isLayerChain(graph) || !stage.checkpoints.empty() || obstacleToRecompute(graph, {stage.begin, stage.end}, model.changes()))
      continue;
    Partition changed = partition;
    changed.stages[s].checkpoints = {{stage.begin, stage.end}};
    consider({.stage = Stage(s)}, costsOf(own, changed));
  }
  if (request.replicas > 1 && !request.zero1 && stateCopies(request.optimizer) > 0) {
    PlanRequest shared = request;
    shared.zero1 = true;
    consider({.by = MemorySaving::By::Zero1}, costsOf(setting(optimizerShards(shared, rows.placement)), partition));
  }
  const auto considerPlan = [&](MemorySaving saving, const PlanRequest& other, CompiledRows& otherRows) {
    try {
      const Predicted then = predictedPlan(other, model, otherRows);
      const auto most = std::ranges::max_element(now.peaks), mostThen = std::ranges::max_element(then.peaks);
      if (*mostThen >= *most) return;
      saving.rank = Rank(static_cast<std::size_t>(most - now.peaks.begin()));
      saving.freed = *most - *mostThen;
      saving.step = then.step;
      memory.savings.push_back(std::move(saving));
    } catch (const UsageError&) {
      return;  // not possible for this model, which is no saving
    }
  };
  const int stages = static_cast<int>(partition.stages.size());
  PlanRequest planned = request;  // with the splits that it has
  planned.begins.clear();
  for (std::size_t s = 1; s < partition.stages.size(); ++s) planned.begins.push_back(partition.stages[s].begin);
  for (const Generator& family : generators()) {
    const Shape shape{request.ranks, stages, request.microbatches};
    if (!family.trains || family.name == request.schedule || family.refusal(shape)) continue;
    PlanRequest other = planned;
    other.schedule = family.name;
    const Schedule familyRows = planRows(family.generate(shape), request.replicas, request.rankOrder);
    CompiledRows otherRows(familyRows);
    considerPlan({.by = MemorySaving::By::Schedule, .schedule = std::string(family.name)}, other, otherRows);
  }
  if (stages > 1) {
    PlanRequest other = planned;
    other.begins = Balancer(graph, model.profile()).begins(stages, Balance::Memory);
    if (other.begins != planned.begins) considerPlan({.by = MemorySaving::By::Splits}, other, compiled);
  }
  const auto price = [&](const MemorySaving& s) {  // of a byte
    return static_cast<double>(std::max<Ns>(0, s.step - now.step)) / static_cast<double>(s.freed);
  };
  std::stable_sort(memory.savings.begin(), memory.savings.end(), [&](const MemorySaving& a, const MemorySaving& b) {
    return std::tuple(price(a), -a.freed) < std::tuple(price(b), -b.freed);
  });
  return memory;
}

}  // namespace pw
