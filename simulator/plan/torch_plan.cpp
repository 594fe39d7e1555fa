#include "simulator/plan/torch_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/plan/plan_fits.h"

namespace pw {
namespace {

/// The name in torch's graph of the first node of a stage that has one: that of its first result. Those without results, which check
/// something, remain in the stage before.
std::string nameOfFirst(const ModelGraph& graph, const StageSpec& stage) {
  for (auto n = stage.begin.index(); n < stage.end.index(); ++n) {
    for (const ValueId output : graph.nodes[n].outputs) {
      if (!graph.value(output).name.empty()) return graph.value(output).name;
    }
    if (!graph.nodes[n].outputs.empty()) break;
  }
  throw UsageError(fmt::format("node {} of {} has no name, so torch cannot be told to cut before it; move the split point",
                               stage.begin.value, graph.name));
}

/// By stage the names of what it computes again, each operator after those that it needs.
nlohmann::ordered_json recomputedOf(const Plan& plan, const ModelGraph& graph) {
  auto recomputed = nlohmann::ordered_json::array();
  for (const StageSpec& stage : plan.partition.stages) {
    auto& names = recomputed.emplace_back(nlohmann::ordered_json::array());
    for (const NodeId node : stage.recomputed) {
      for (const ValueId output : graph.node(node).outputs) {
        if (!graph.value(output).name.empty()) names.push_back(graph.value(output).name);
      }
    }
  }
  return recomputed;
}

nlohmann::ordered_json sharedOf(const Plan& plan, const ModelGraph& graph) {
  auto shared = nlohmann::ordered_json::array();
  for (const SharedParameter& parameter : plan.partition.shared) {
    std::vector<std::string> names{parameter.name};
    for (const StateTensor& state : graph.parameters) {
      if (storageOf(state) == parameter.storage && state.name != parameter.name) names.push_back(state.name);
    }
    for (const auto& [alias, name] : graph.tiedAliases) {
      if (std::find(names.begin(), names.end(), name) != names.end()) names.push_back(alias);
    }
    std::vector<int> stages;
    for (const Stage stage : parameter.stages) stages.push_back(stage.value);
    shared.push_back({{"names", names}, {"stages", stages}});
  }
  return shared;
}

/// A tensor for the script; sizes for one microbatch. `whole`: it has no samples, and all microbatches get the same.
nlohmann::ordered_json inputOf(const ModelGraph& graph, ValueId id, const Bindings& bindings) {
  const Value& value = graph.value(id);
  if (!value.tensor)
    throw UsageError(fmt::format("input {} is not a tensor; torch's pipelining can only split tensors into microbatches", value.name));
  return {{"name", value.name},
          {"dtype", nameOf(value.tensor->dtype)},
          {"shape", shapeOf(*value.tensor, bindings)},
          {"whole", !batchAxis(graph, id)}};
}

/// What torch's autocast computes in: of fp8 the rest.
DType torchPrecision(const Plan& plan) {
  const DType precision = plan.profile.computing.precision;
  return precision == DType::Float8 ? DType::BFloat16 : precision;
}

std::vector<std::string> notesOf(const Plan& plan) {
  std::vector<std::string> notes;
  const auto anyStage = [&](auto holds) { return std::any_of(plan.partition.stages.begin(), plan.partition.stages.end(), holds); };
  if (anyStage([](const StageSpec& s) { return !s.checkpoints.empty(); })) {
    notes.emplace_back("The plan recomputes activations; torch's stages keep them all, so they need more memory and less time.");
  }
  const std::int64_t microbatches = std::int64_t{plan.replicas} * plan.schedule.microbatches;
  if (plan.batch != microbatches * plan.microbatchSize) {
    notes.push_back(
        fmt::format("The plan's batch of {} makes microbatches of different sizes; torch needs equal ones, so a step has {} samples.",
                    plan.batch, microbatches * plan.microbatchSize));
  }
  if (plan.profile.computing.precision == DType::Float8)
    notes.emplace_back("The plan computes linear layers in 8 bits; torch's autocast does not, so all are in bfloat16.");
  if (plan.schedule.lockstep) notes.emplace_back("Ranks follow their orders without exchanging messages in cycles.");
  return notes;
}

/// torch's pipelining cuts tensors into microbatches along dimension 0, a row for each sample.
void requireRowsOfSamples(const ModelGraph& graph, ValueId value) {
  const auto axis = batchAxis(graph, value);
  if (!axis || *axis == BatchAxis{}) return;
  throw UsageError(fmt::format(
      "value {} of {} does not have one row per sample in dimension 0, the only layout that torch.distributed.pipelining can split "
      "into microbatches; run the plan with pipewright",
      graph.value(value).name, graph.name));
}

/// torch gives a value to one stage only; and where stages that are not neighbours are on one rank, or on ranks that have other messages
/// for each other, it takes these messages for each other, or sends to itself.
void requireOneReceiver(const Plan& plan, const ModelGraph& graph) {
  const auto ranksOf = [&](const Transfer& t) {
    const auto& owners = plan.schedule.placement.rankOfStage;
    const int from = owners.at(t.from.index()).value, to = owners.at(t.to.index()).value;
    return std::pair(std::min(from, to), std::max(from, to));
  };
  const auto isMixedUp = [&](const Transfer& t) {
    const auto ranks = ranksOf(t);
    return ranks.first == ranks.second || std::ranges::any_of(plan.partition.transfers, [&](const Transfer& other) {
             return (other.from != t.from || other.to != t.to) && ranksOf(other) == ranks;
           });
  };
  std::map<ValueId, Stage> receivers;
  for (const Transfer& transfer : plan.partition.transfers) {
    const auto [other, isFirst] = receivers.emplace(transfer.value, transfer.to);
    const std::string& name = graph.value(transfer.value).name;
    if (!isFirst)
      throw UsageError(
          fmt::format("value {} of {} goes from stage {} to the stages {} and {}, and torch.distributed.pipelining 2.11 can send it to "
                      "one stage only; move the cuts so that one stage uses it, or run the plan with pipewright",
                      name, graph.name, transfer.from.value, other->second.value, transfer.to.value));
    if (transfer.to.value != transfer.from.value + 1 && isMixedUp(transfer))
      throw UsageError(
          fmt::format("value {} of {} goes from stage {} past others to stage {}, and torch.distributed.pipelining 2.11 mixes it up with "
                      "other messages of their ranks; plan one stage per rank, move the cuts, or run the plan with pipewright",
                      name, graph.name, transfer.from.value, transfer.to.value));
  }
}

/// torch 2.11 demands a gradient of all that a stage receives in training.
void requireFloatsSent(const Plan& plan, const ModelGraph& graph) {
  if (!trains(plan.schedule)) return;
  for (const Transfer& transfer : plan.partition.transfers) {
    const Value& value = graph.value(transfer.value);
    if (!value.tensor || isDifferentiable(value.tensor->dtype)) continue;
    throw UsageError(fmt::format(
        "value {} of {}, of type {}, goes from stage {} to stage {}, and torch.distributed.pipelining 2.11 sends floating-point "
        "values only (\"only Tensors of floating point dtype can require gradients\"); move the cuts, or run the plan with "
        "pipewright",
        value.name, graph.name, nameOf(value.tensor->dtype), transfer.from.value, transfer.to.value));
  }
}

/// torch computes sizes when it cuts the model, and leaves no stage of a part that has nothing else.
void requireTensors(const Plan& plan, const ModelGraph& graph) {
  const auto makesTensor = [&](const Node& node) {
    return std::ranges::any_of(node.outputs, [&](ValueId output) { return graph.value(output).tensor.has_value(); });
  };
  for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
    const StageSpec& stage = plan.partition.stages[s];
    if (std::any_of(graph.nodes.begin() + stage.begin.value, graph.nodes.begin() + stage.end.value, makesTensor)) continue;
    throw UsageError(
        fmt::format("stage {} of {} computes sizes only, no tensor, and torch.distributed.pipelining 2.11 makes no stage of "
                    "that; move the cuts, or plan with fewer stages",
                    s, graph.name));
  }
}

/// The script puts the graphs of regions without autocast in their places, where it has none itself.
void requireNoAutocast(const Plan& plan, const ModelGraph& graph) {
  const auto refuseRegions = [&](const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      if (node.target != "torch.ops.higher_order.wrap_with_autocast") continue;
      const bool* enabled = node.inputs.size() > 2 ? std::get_if<bool>(&node.inputs[2].value) : nullptr;
      if (enabled != nullptr && !*enabled && torchPrecision(plan) == DType::Unknown) continue;
      throw UsageError(
          fmt::format("{} has an autocast region of its own, which torch.distributed.pipelining 2.11 cannot cut; run the plan "
                      "with pipewright",
                      graph.name));
    }
  };
  refuseRegions(graph.nodes);
  for (const Subgraph& subgraph : graph.subgraphs) refuseRegions(subgraph.nodes);
}

/// torch's cut loses the graphs of branches and loops; those of no_grad and autocast regions the script puts in their places.
void requireNoBranches(const ModelGraph& graph) {
  constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";
  for (const Node& node : graph.nodes) {
    if (!node.target.starts_with(kHigherOrder) || node.target.starts_with("torch.ops.higher_order.wrap_with_")) continue;
    throw UsageError(fmt::format("{} has {}, which torch.distributed.pipelining 2.11 cannot cut; run the plan with pipewright", graph.name,
                                 node.target.substr(kHigherOrder.size())));
  }
}

}  // namespace

TorchPlan torchPlan(const Plan& plan, const ModelGraph& graph) {
  if (isLayerChain(graph))
    throw UsageError(fmt::format("torch needs the model, and {} is a layer table or a job; plan the model's archive", graph.name));
  requireFits(plan, graph);
  requireSameSplits(plan, "torch.distributed.pipelining");
  if (plan.schedule.placement.bidirectional())
    throw UsageError(fmt::format(
        "{} keeps two replicas of each stage, which torch.distributed.pipelining does not support; plan with dualpipev or zbv instead",
        plan.schedule.name));
  if (plan.modelFiles.size() != 1)
    throw UsageError(fmt::format("{} was exported in {} archives; torch needs the model in one", plan.modelName, plan.modelFiles.size()));
  requireOneReceiver(plan, graph);
  requireFloatsSent(plan, graph);
  requireTensors(plan, graph);
  requireNoBranches(graph);
  requireNoAutocast(plan, graph);
  const Bindings bindings = bindBatch(graph, plan.microbatchSize);
  const std::size_t lossOutput = outputOf(graph, plan.loss);
  for (const ValueId input : graph.inputs) requireRowsOfSamples(graph, input);
  if (plan.loss.kind == LossKind::CrossEntropy || plan.loss.kind == LossKind::MeanSquaredError)
    requireRowsOfSamples(graph, graph.outputs.at(lossOutput));

  nlohmann::ordered_json settings;
  settings["model"] = plan.modelFiles.front();
  settings["schedule"] = plan.schedule.name;
  settings["ranks"] = plan.schedule.rows.size();
  settings["replicas"] = plan.replicas;
  settings["microbatches"] = plan.schedule.microbatches;
  settings["microbatch"] = plan.microbatchSize;
  auto& begins = settings["begins"] = nlohmann::ordered_json::array();
  for (std::size_t s = 1; s < plan.partition.stages.size(); ++s) begins.push_back(nameOfFirst(graph, plan.partition.stages[s]));
  settings["recomputed"] = recomputedOf(plan, graph);
  settings["precision"] = precisionName(torchPrecision(plan));
  settings["split_points"] = plan.splitNames;
  auto& owners = settings["stage_to_rank"] = nlohmann::ordered_json::array();
  for (const Rank rank : plan.schedule.placement.rankOfStage) owners.push_back(rank.value);
  auto& inputs = settings["inputs"] = nlohmann::ordered_json::array();
  for (const ValueId input : graph.inputs) inputs.push_back(inputOf(graph, input, bindings));
  settings["loss"] = nameOf(plan.loss.kind);
  settings["loss_output"] = lossOutput;
  const Value& output = graph.value(graph.outputs.at(lossOutput));
  settings["output_shape"] = output.tensor ? shapeOf(*output.tensor, bindings) : std::vector<std::int64_t>{};
  settings["shared"] = sharedOf(plan, graph);
  for (const OptimizerFacts& optimizer : kOptimizers) settings["optimizers"][optimizer.name] = optimizer.className;
  return {toCsv(computeOnly(plan.schedule)), settings.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n",
          notesOf(plan)};
}

}  // namespace pw
