#include "simulator/plan/memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "schedules/generate.h"
#include "simulator/partition/balancer.h"
#include "simulator/partition/recomputed_ranges.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/plan/sharing.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/execute.h"
#include "simulator/text/digits.h"

namespace pw {
namespace {

std::string moduleOf(const Node& node) {
  for (const ModuleFrame& frame : node.modules) {
    if (isDigits(std::string_view(frame.path).substr(frame.path.rfind('.') + 1))) return frame.path;
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

/// The same of a whole plan; nothing where it is not possible for this model.
std::optional<Predicted> predictedPlan(const PlanRequest& request, ModelCosts& model, CompiledRows& rows) {
  Answer<Priced> priced = tryPrice(request, model, rows);
  if (!priced) return std::nullopt;
  CostTable& costs = priced->costs;
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, rows.rows().placement));
  return predicted(rows, costs);
}

/// Looks for changes of a plan that free memory.
class SavingSearch {
 public:
  SavingSearch(const PlanRequest& request, ModelCosts& model, const Schedule& rows, const Partition& partition)
      : request_(request),
        model_(model),
        partition_(partition),
        compiled_(rows),
        costs_(costsFor(request, partition)),
        now_(predicted(compiled_, costs_)),
        planned_(request) {
    planned_.begins.clear();
    for (std::size_t s = 1; s < partition.stages.size(); ++s) planned_.begins.push_back(partition.stages[s].begin);
  }

  [[nodiscard]] const CostTable& costs() const { return costs_; }  ///< of the plan as it is, with the optimizer's state
  [[nodiscard]] Ns step() const { return now_.step; }

  /// Those that free something, most for each ns of the step first.
  std::vector<MemorySaving> run() {
    recomputeStages();
    shareOptimizer();
    tryFamilies();
    splitByMemory();
    const auto price = [&](const MemorySaving& s) {  // of a byte
      return static_cast<double>(std::max<Ns>(0, s.step - now_.step)) / static_cast<double>(s.freed);
    };
    std::stable_sort(savings_.begin(), savings_.end(), [&](const MemorySaving& a, const MemorySaving& b) {
      return std::tuple(price(a), -a.freed) < std::tuple(price(b), -b.freed);
    });
    return std::move(savings_);
  }

 private:
  /// Of the same rows, as a plan of them is priced, with the optimizer's state.
  [[nodiscard]] CostTable costsFor(const PlanRequest& request, const Partition& partition) {
    CostTable costs = pricedCosts(request, model_, compiled_, partition);
    addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, compiled_.rows().placement));
    return costs;
  }

  /// Of the same rows with other costs: by the rank that this frees most of.
  void consider(MemorySaving saving, const CostTable& changed) {
    const Predicted then = predicted(compiled_, changed);
    saving.step = then.step;
    for (std::size_t r = 0; r < then.peaks.size(); ++r) {
      if (now_.peaks[r] - then.peaks[r] <= saving.freed) continue;
      saving.rank = Rank(r);
      saving.freed = now_.peaks[r] - then.peaks[r];
    }
    if (saving.freed > 0) savings_.push_back(std::move(saving));
  }

  /// Of another plan, where the largest peak of all ranks is lower: by the rank that needs the most now.
  void considerPlan(MemorySaving saving, const PlanRequest& other, CompiledRows& otherRows) {
    const std::optional<Predicted> then = predictedPlan(other, model_, otherRows);
    if (!then) return;
    const auto most = std::ranges::max_element(std::as_const(now_.peaks)), mostThen = std::ranges::max_element(then->peaks);
    if (*mostThen >= *most) return;
    saving.rank = Rank(static_cast<std::size_t>(most - now_.peaks.begin()));
    saving.freed = *most - then->peaks[saving.rank.index()];
    saving.step = then->step;
    savings_.push_back(std::move(saving));
  }

  void recomputeStages() {
    for (std::size_t s = 0; s < partition_.stages.size(); ++s) {
      const NodeRange whole{partition_.stages[s].begin, partition_.stages[s].end};
      if (!partition_.stages[s].checkpoints.empty() || obstacleToRecompute(model_.graph(), whole, model_.changes())) continue;
      Partition changed = partition_;
      changed.stages[s].checkpoints = {whole};
      consider({.stage = Stage(s)}, costsFor(request_, changed));
    }
  }

  void shareOptimizer() {
    if (optimizerShards(true, request_.replicas, compiled_.rows().placement) <= 1 || request_.zero1 || stateCopies(request_.optimizer) <= 0)
      return;
    PlanRequest shared = request_;
    shared.zero1 = true;
    consider({.by = MemorySaving::By::Zero1}, costsFor(shared, partition_));
  }

  void tryFamilies() {
    const Shape shape{request_.ranks, static_cast<int>(partition_.stages.size()), request_.microbatches};
    for (const Generator& family : generators()) {
      if (!family.trains || family.name == request_.schedule || family.refusal(shape)) continue;
      PlanRequest other = planned_;
      other.schedule = family.name;
      const Schedule rows = planRows(family.generate(shape), request_.replicas, request_.rankOrder);
      CompiledRows compiled(rows);
      considerPlan({.by = MemorySaving::By::Schedule, .schedule = std::string(family.name), .chunks = shape.stages / shape.ranks}, other,
                   compiled);
    }
  }

  void splitByMemory() {
    const int stages = static_cast<int>(partition_.stages.size());
    if (stages <= 1) return;
    PlanRequest other = planned_;
    Answer<std::vector<NodeId>> balanced = Balancer(model_.graph(), model_.profile()).begins(stages, Balance::Memory);
    if (!balanced) return;
    other.begins = *std::move(balanced);
    if (other.begins != planned_.begins) considerPlan({.by = MemorySaving::By::Splits}, other, compiled_);
  }

  const PlanRequest& request_;
  ModelCosts& model_;
  const Partition& partition_;
  CompiledRows compiled_;
  CostTable costs_;
  Predicted now_;
  PlanRequest planned_;  ///< with the splits that it has
  std::vector<MemorySaving> savings_;
};

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
  if (!request.replicaBegins.empty()) {
    const OwnPipeline own = shownPipeline(request, model.profile());
    ModelCosts costs(model.graph(), own.profile, request.microbatch);
    return memoryOf(own.request, costs, rows, partition);
  }
  SavingSearch search(request, model, rows, partition);
  PlanMemory memory{memoryOf(rows, search.costs()), {}, search.step(), search.run()};
  for (const StageSpec& stage : partition.stages) memory.modules.push_back(memoryByModule(model.graph(), stage, model.profile()));
  return memory;
}

}  // namespace pw
