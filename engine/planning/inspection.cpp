#include "engine/planning/inspection.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "backends/pt2/record.h"
#include "backends/resources/resources.h"
#include "backends/torch/backend.h"
#include "engine/planning/inputs/limits.h"
#include "engine/run/trial_verdict.h"
#include "schedules/error.h"
#include "simulator/costs/expected_sizes.h"
#include "simulator/model/batch.h"
#include "simulator/model/loss_count.h"
#include "simulator/partition/partition.h"
#include "simulator/plan/planner.h"
#include "simulator/report/json.h"
#include "simulator/report/split_verdict.h"
#include "simulator/text/json_text.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr unsigned kTrialThreads = 16;  ///< of a trial, whose batch is small

/// LibTorch's facts about its operators; nothing if its module is missing, which a report does not need.
OperatorFacts torchsOperators() {
  try {
    return {torchBackend().hasOperator, torchBackend().writtenArguments};
  } catch (const Error&) {
    return {};
  }
}

/// As `run` would weigh microbatches, and where --loss-count auto can weigh the loss, with that too.
std::vector<Trial> tried(const ModelGraph& graph) {
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kTrialThreads)));
  TrialOptions options;
  options.loss = defaultLoss(graph);
  std::vector<Trial> trials{tryMicrobatches(graph, options, torch)};
  if (!trials.front().refused.empty() || trials.front().sameResults()) return trials;
  if (!tryLossCount(graph, options.loss, "auto")) return trials;  // nothing to weigh by
  options.lossCount = "auto";
  trials.push_back(tryMicrobatches(graph, options, torch));
  return trials;
}

Json valueJson(const ModelGraph& graph, ValueId id, const Bindings& bindings) {
  const Value& value = graph.value(id);
  if (!value.tensor) return {{"name", value.name}};
  Json shape = Json::array();
  const std::vector<std::string> words = dimensionLabels(graph, *value.tensor);
  for (std::size_t d = 0; d < words.size(); ++d) {
    const SymbolicInt& size = value.tensor->sizes[d];
    shape.push_back(size.expression.empty() ? Json(size.hint) : Json(words[d]));
  }
  Json json{{"name", value.name}, {"dtype", nameOf(value.tensor->dtype)}, {"shape", shape}};
  const auto axis = batchAxis(graph, id);
  json["batch_dimension"] = axis ? Json(axis->dimension) : Json(nullptr);
  if (value.origin == ValueOrigin::Input) json["sizes"] = shapeOf(*value.tensor, bindings);
  return json;
}

Json modulesJson(const Inspection& shown, int depth) {
  Json modules = Json::array();
  for (const ModuleSummary& module : shown.modules) {
    if (module.depth > depth) continue;
    modules.push_back({{"path", module.path},
                       {"class", module.className},
                       {"depth", module.depth},
                       {"operators", module.operators},
                       {"parameters", module.parameters},
                       {"parameter_bytes", module.parameterBytes},
                       {"forward_flops", module.forwardFlops},
                       {"activation_bytes", module.activationBytes}});
  }
  return modules;
}

Json differenceJson(const TrialDifference& difference) {
  const bool finite = std::isfinite(difference.relative);
  return {{"equal", difference.equal}, {"relative", finite ? Json(difference.relative) : Json("infinite")}, {"largest", difference.name}};
}

Json trialJson(const Trial& trial) {
  if (!trial.refused.empty()) return {{"refused", trial.refused}};
  Json json{{"batch", trial.batch},
            {"loss", toString(trial.loss)},
            {"loss_count", trial.lossCount},
            {"ignored_targets", trial.ignoredTargets},
            {"switched_off", trial.switchedOff},
            {"random", trial.random}};
  json["same_results"] = trial.sameResults();
  json["same_buffers"] = trial.sameBuffers();
  json["steps"] = Json::array();
  for (const TrialStep& step : trial.steps) {
    Json entry{{"microbatches", step.microbatches}, {"failure", step.failure}};
    if (step.failure.empty()) {
      entry["loss"] = std::isfinite(step.loss) ? Json(step.loss) : Json(nullptr);
      entry["loss_difference"] = differenceJson(step.lossDifference);
      entry["outputs"] = differenceJson(step.outputs);
      entry["gradients"] = differenceJson(step.gradients);
      entry["buffers"] = differenceJson(step.buffers);
    }
    json["steps"].push_back(entry);
  }
  return json;
}

}  // namespace

Inspection inspect(const InspectOptions& options) {
  if (options.depth) requireWhole("--depth", *options.depth, 0, kMostDepth);
  requireWhole("--microbatch", options.microbatch, 0, 1 << 30);
  Inspection result;
  loadLibraries(options.libraries);
  result.graph = loadModel(options.models);
  result.exported = readExportRecord(result.graph);
  result.microbatch = options.microbatch > 0 ? options.microbatch : exportedBatch(result.graph);
  result.modules = moduleTree(result.graph, bindExpected(result.graph, result.microbatch));
  result.splits = splitPoints(result.graph, bindBatch(result.graph, result.microbatch));
  result.notCounted = notCounted(result.graph, result.microbatch);
  result.tied = tiedParameters(result.graph);
  if (options.report) {
    const OperatorFacts facts = torchsOperators();
    result.hasTorch = static_cast<bool>(facts.has);
    result.findings = splitReport(result.graph, facts);
  }
  if (options.tries) result.trials = tried(result.graph);
  return result;
}

bool hasWeights(const ModelGraph& graph) {
  return std::all_of(graph.parameters.begin(), graph.parameters.end(), [](const StateTensor& p) { return p.stored.has_value(); });
}

std::string documentOf(const Inspection& shown, const InspectOptions& options) {
  const ModelGraph& graph = shown.graph;
  const Bindings bindings = bindBatch(graph, shown.microbatch);
  Json json{{"model", graph.name},
            {"files", graph.files},
            {"weights", hasWeights(graph)},
            {"symbolic_batch", !batchSymbol(graph).empty()},
            {"exported_batch", exportedBatch(graph)},
            {"microbatch", shown.microbatch}};
  json["trace_check"] = ownJson(toJson(shown.exported));
  for (const auto& [key, values] : {std::pair{"inputs", &graph.inputs}, {"outputs", &graph.outputs}}) {
    json[key] = Json::array();
    for (const ValueId id : *values) json[key].push_back(valueJson(graph, id, bindings));
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) json["outputs"][i]["output_name"] = graph.outputNames[i];
  json["modules"] = modulesJson(shown, options.depth.value_or(kMostDepth));
  json["not_counted"] = ownJson(notCountedJson(shown.notCounted));
  json["tied_parameters"] = Json::array();
  for (const auto& [alias, held] : shown.tied) json["tied_parameters"].push_back({{"name", alias}, {"same_as", held}});
  json["split_points"] = Json::array();
  for (const SplitPoint& point : shown.splits) {
    json["split_points"].push_back(
        {{"name", point.name}, {"node", point.begin.value}, {"crossing_bytes", point.crossing}, {"values", point.values}});
  }
  if (options.tries) {
    json["tried"] = Json::array();
    for (const Trial& trial : shown.trials) json["tried"].push_back(trialJson(trial));
  }
  if (options.report) {
    const SplitVerdict verdict = withTrials(splitVerdict(shown.findings), shown.trials);
    json["verdict"] = {
        {"same", nameOf(verdict.same)}, {"random", verdict.draws}, {"disagrees", verdict.disagrees}, {"sentence", verdict.sentence}};
    json["report"] = Json::array();
    for (const Finding& finding : shown.findings) {
      const FindingFacts& facts = factsOf(finding.kind);
      json["report"].push_back({{"kind", facts.name},
                                {"module", finding.module},
                                {"operator", finding.op},
                                {"source", finding.source},
                                {"detail", finding.detail},
                                {"meaning", facts.meaning},
                                {"cure", facts.cure}});
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pw
