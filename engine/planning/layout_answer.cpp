#include "engine/planning/layout_answer.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "simulator/step/cost_table.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

LayoutBalance balanceOf(const ExaminedLayout& of, const auto& ofStage) {
  std::vector<double> ranks(static_cast<std::size_t>(of.ranks), 0);
  for (std::size_t s = 0; s < of.layout.stages.size(); ++s) ranks[s % ranks.size()] += ofStage(s);
  LayoutBalance balance;
  for (const double rank : ranks) {
    balance.most = std::max(balance.most, rank);
    balance.mean += rank / static_cast<double>(ranks.size());
  }
  return balance;
}

Json stagesJson(const ExaminedLayout& of) {
  Json stages = Json::array();
  for (std::size_t s = 0; s < of.layout.stages.size(); ++s) {
    const std::vector<LayoutLayer>& stage = of.layout.stages[s];
    std::string letters;
    for (const LayoutLayer layer : stage) letters += letterOf(layer);
    const auto ranks = static_cast<std::size_t>(of.ranks);
    Json json{{"stage", s}, {"rank", s % ranks}, {"chunk", s / ranks}, {"layers", letters}, {"empty", stage.empty()}};
    if (of.subject) {
      json["forward_ns"] = of.subject->costs.stages[s].forward;
      json["backward_ns"] = of.subject->costs.stages[s].backward;
      json["parameter_bytes"] = of.subject->costs.stages[s].parameterBytes;
    }
    stages.push_back(std::move(json));
  }
  return stages;
}

Json problemsJson(const ExaminedLayout& of) {
  Json problems = Json::array();
  for (const LayoutProblem& problem : of.problems)
    problems.push_back({{"stage", problem.stage ? Json(problem.stage->value) : Json()},
                        {"character", problem.stage ? Json(of.places[problem.stage->index()]) : Json()},
                        {"message", problem.message}});
  if (of.refusal) problems.push_back({{"stage", Json()}, {"message", *of.refusal}});
  return problems;
}

void addPrediction(Json& json, const PredictionReport& report) {
  json["makespan_ns"] = report.metrics.makespan;
  json["step_ns"] = report.metrics.step;
  json["bubble_fraction"] = report.metrics.bubbleFraction;
  json["lower_bound_ns"] = report.lowerBound.flush;
  Json ranks = Json::array();
  for (const RankMetrics& rank : report.metrics.ranks)
    ranks.push_back({{"rank", rank.rank.value}, {"busy_ns", rank.busy}, {"idle_ns", rank.idle}, {"peak_bytes", rank.peakBytes}});
  json["ranks"] = std::move(ranks);
}

}  // namespace

LayoutBalance layersBalance(const ExaminedLayout& of) {
  return balanceOf(of,
                   [&](std::size_t s) { return static_cast<double>(std::ranges::count(of.layout.stages[s], LayoutLayer::Transformer)); });
}

LayoutBalance timesBalance(const ExaminedLayout& of) {
  const std::vector<StageCost>& stages = of.subject->costs.stages;
  return balanceOf(of, [&](std::size_t s) { return static_cast<double>(stages[s].forward + stages[s].backward); });
}

LayoutAnswer answerLayout(const LayoutOptions& options) {
  LayoutAnswer answer{examineLayout(options), {}, {}};
  if (!answer.isAccepted()) return answer;
  Subject plain;  // without a table only the order counts
  plain.schedule = answer.examined.schedule;
  plain.costs = defaultCosts(shapeOf(plain.schedule).stages);
  const bool hasTable = answer.examined.subject.has_value();
  SubjectPrediction predicted = predictRuntime(hasTable ? *answer.examined.subject : plain, {.runtime = Runtime::Megatron}).of;
  for (const Problem& problem : predicted.problems) answer.deadlock.push_back(problem.message);
  if (hasTable && answer.deadlock.empty()) answer.predicted = std::move(predicted);
  return answer;
}

std::string layoutJson(const LayoutAnswer& answer) {
  const auto& [of, deadlock, predicted] = answer;
  Json json{{"layout", toString(of.layout)},
            {"valid", answer.isAccepted()},
            {"pipeline_ranks", of.ranks},
            {"chunks", of.chunks},
            {"microbatches", of.microbatches},
            {"transformer_layers", of.layout.count(LayoutLayer::Transformer)},
            {"mtp_layers", of.layout.count(LayoutLayer::Mtp)},
            {"schedule", of.schedule.name},
            {"deadlock", !deadlock.empty()},
            {"stages", stagesJson(of)},
            {"problems", problemsJson(of)},
            {"notes", of.notes},
            {"balance", {{"layers_above_mean", layersBalance(of).above()}}}};
  if (of.subject) json["balance"]["time_above_mean"] = timesBalance(of).above();
  if (predicted) addPrediction(json, predicted->report);
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pw
