#include "simulator/report/json.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include <nlohmann/json.hpp>

#include "simulator/report/bubble_causes.h"
#include "simulator/report/explain_text.h"
#include "simulator/text/json_text.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kCausesShown = 64;

std::string textOf(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

Json ranksOf(const Metrics& metrics, const std::vector<RankPhases>& phases, const std::vector<Bytes>& processBytes) {
  Json ranks = Json::array();
  for (const RankMetrics& rank : metrics.ranks) {
    ranks.push_back({{"rank", rank.rank.value},
                     {"busy_ns", rank.busy},
                     {"idle_ns", rank.idle},
                     {"exposed_comm_ns", rank.exposedComm},
                     {"peak_bytes", rank.peakBytes},
                     {"peak_live_microbatches", rank.peakLiveMicrobatches}});
    if (!processBytes.empty()) ranks.back()["resident_bytes"] = rank.peakBytes + processBytes.at(rank.rank.index());
    if (rank.rank.index() >= phases.size()) continue;
    for (std::size_t p = 0; p < kPhases; ++p)
      ranks.back()["idle_by_phase_ns"][std::string(nameOf(static_cast<Phase>(p)))] = phases[rank.rank.index()].idle[p];
  }
  return ranks;
}

Json stagesOf(const Schedule& schedule, const CostTable& costs) {
  Json stages = Json::array();
  for (std::size_t s = 0; s < costs.stages.size() && s < schedule.placement.rankOfStage.size(); ++s) {
    const StageCost& cost = costs.stages[s];
    stages.push_back({{"stage", s},
                      {"rank", schedule.placement.rankOfStage[s].value},
                      {"forward_ns", cost.forward},
                      {"backward_ns", cost.backward},
                      {"backward_input_ns", cost.backwardInput},
                      {"backward_weight_ns", cost.backwardWeight},
                      {"optimizer_ns", cost.optimizer},
                      {"parameter_bytes", cost.parameterBytes},
                      {"gradient_bytes", cost.gradientBytes},
                      {"optimizer_bytes", cost.optimizerBytes},
                      {"updated_bytes", cost.updatedBytes},
                      {"fixed_bytes", cost.fixedBytes},
                      {"data_bytes", cost.dataBytes},
                      {"activation_bytes", cost.activationBytes},
                      {"freed_by_input_bytes", cost.freedByInput},
                      {"added_by_input_bytes", cost.addedByInput},
                      {"shared_for_weight_bytes", cost.sharedForWeight},
                      {"forward_peak_bytes", cost.forwardPeak},
                      {"backward_peak_bytes", cost.backwardPeak},
                      {"input_peak_bytes", cost.inputPeak},
                      {"weight_peak_bytes", cost.weightPeak},
                      {"reduce_ns", cost.reduce}});
  }
  return stages;
}

Json jitterOf(const Jitter& jitter) {
  const auto& makespans = jitter.makespans;
  double sum = 0;
  for (const Ns makespan : makespans) sum += static_cast<double>(makespan);
  return {{"sigma", jitter.sigma},
          {"seed", jitter.seed},
          {"draws", makespans.size()},
          {"makespan_ns",
           {{"min", makespans.front()},
            {"p5", quantile(jitter, 0.05)},
            {"p50", quantile(jitter, 0.5)},
            {"p95", quantile(jitter, 0.95)},
            {"max", makespans.back()},
            {"mean", sum / static_cast<double>(makespans.size())}}}};
}

Json groupsOf(const std::vector<GroupError>& groups) {
  Json result = Json::array();
  for (const GroupError& group : groups) {
    result.push_back({{"group", group.group},
                      {"predicted_ns", group.predicted},
                      {"measured_ns", group.measured},
                      {"duration_error", group.durationError},
                      {"contribution_ns", group.contribution}});
  }
  return result;
}

Json verdictOf(const Verdict& verdict, const std::string& sentence) {
  Json json{{"sentence", sentence}, {"main", nullptr}};
  if (!verdict.main) return json;
  const MainPart& main = *verdict.main;
  json["main"] = {
      {"group", main.group.empty() ? Json(nullptr) : Json(main.group)}, {"is_most", main.isMost}, {"difference_ns", main.difference}};
  return json;
}

std::string_view nameOf(Doing doing) {
  switch (doing) {
    case Doing::Compute: return "compute";
    case Doing::Load: return "load";
    case Doing::Store: return "store";
    case Doing::Transfer: return "transfer";
    case Doing::Queue: return "queue";
    case Doing::Latency: return "latency";
  }
  return "?";
}

Json segmentsOf(const std::vector<Segment>& segments) {
  Json list = Json::array();
  for (const Segment& s : segments) {
    list.push_back(
        {{"doing", nameOf(s.doing)}, {"rank", s.rank.value}, {"action", toString(s.action)}, {"start_ns", s.from}, {"end_ns", s.to}});
    if (isMessage(s.doing)) list.back()["to_rank"] = s.peer.value;
    if (s.partner) list.back()["with"] = toString(*s.partner);
  }
  return list;
}

/// Where the time of the critical path goes; its segments where all are wanted.
Json pathOf(const CriticalPath& path, bool segments) {
  Json json{{"transfer_ns", path.transfer}, {"queue_ns", path.queue}, {"latency_ns", path.latency}, {"compute", Json::array()}};
  for (std::size_t rank = 0; rank < path.compute.size(); ++rank) {
    const CriticalPath::Share& share = path.compute[rank];
    json["compute"].push_back({{"rank", rank},
                               {"forward_ns", share.forward},
                               {"backward_ns", share.backward},
                               {"backward_input_ns", share.backwardInput},
                               {"backward_weight_ns", share.backwardWeight},
                               {"overlapped_ns", share.slot},
                               {"host_ns", share.host}});
  }
  if (segments) json["segments"] = segmentsOf(path.segments);
  return json;
}

/// The largest causes; all of them grow with the square of the ranks.
Json groupsOf(const std::vector<BubbleGroup>& groups, std::size_t most) {
  Json list = Json::array();
  for (const BubbleGroup& g : std::span(groups).first(std::min(most, groups.size()))) {
    list.push_back({{"rank", g.rank.value},
                    {"phase", nameOf(g.phase)},
                    {"waits_for_rank", g.cause.value},
                    {"message", g.message},
                    {"idle_ns", g.idle}});
  }
  return list;
}

Json idleOf(const std::vector<IdleByCause>& ranks) {
  Json list = Json::array();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    list.push_back({{"rank", rank},
                    {"start_up_ns", ranks[rank].of(BubbleCause::StartUp)},
                    {"imbalance_ns", ranks[rank].of(BubbleCause::Imbalance)},
                    {"drain_ns", ranks[rank].of(BubbleCause::Drain)},
                    {"message_ns", ranks[rank].of(BubbleCause::Message)},
                    {"work_ready_ns", ranks[rank].workReady}});
  }
  return list;
}

Json bubblesOf(const std::vector<Bubble>& bubbles) {
  Json list = Json::array();
  for (const Bubble& b : bubbles) {
    list.push_back({{"rank", b.rank.value},
                    {"start_ns", b.start},
                    {"end_ns", b.end},
                    {"phase", nameOf(b.phase)},
                    {"why", toString(b)},
                    {"causes", segmentsOf(b.causes)}});
  }
  return list;
}

Json shapeFields(const Schedule& schedule) {
  const Shape shape = shapeOf(schedule);
  return {{"schedule", schedule.name},
          {"rank_count", shape.ranks},
          {"stage_count", shape.stages},
          {"placement", nameOf(kindOf(schedule.placement, shape))},
          {"microbatches", shape.microbatches}};
}

/// Beside the fields of every schedule.
void addCertificate(Json& json, const Certificate& certificate) {
  Json own = ownJson(toJson(certificate));
  own.erase("time_ns");  // the makespan or the window
  json.update(own);
}

Json uncertaintyJson(const Uncertainty& uncertainty, Ns step) {
  const Ns bar = errorBar(uncertainty, step);
  return {{"deviation", uncertainty.deviation},
          {"runs", uncertainty.runs},
          {"step_low_ns", std::max<Ns>(0, step - bar)},
          {"step_high_ns", step + bar}};
}

/// Of what is known.
void addRates(Json& json, const StepWork& work, Ns step) {
  if (step <= 0) return;
  const double seconds = static_cast<double>(step) * 1e-9;
  if (work.samples > 0) json["samples_per_second"] = static_cast<double>(work.samples) / seconds;
  if (work.tokens > 0) json["tokens_per_second"] = static_cast<double>(work.tokens) / seconds;
  if (work.flops <= 0) return;
  json["model_flops_per_second"] = work.flops / seconds;
  json["tflops_per_device"] = work.flops / seconds / work.devices * 1e-12;
}

}  // namespace

std::string predictionJson(const PredictionReport& prediction, const Schedule& schedule, const CostTable& costs) {
  std::size_t actions = 0;
  for (const auto& row : schedule.rows) {
    for (const Action& action : row) actions += isCompute(action.kind) ? 1U : 0U;
  }
  const Metrics& metrics = prediction.metrics;
  Json json = shapeFields(schedule);
  json["actions"] = actions;
  json["makespan_ns"] = metrics.makespan;
  json["window_ns"] = metrics.window;
  json["step_ns"] = metrics.step;
  json["lower_bound_ns"] = prediction.lowerBound.flush;
  json["lower_bound_window_ns"] = prediction.lowerBound.window;
  if (prediction.uncertainty) json["uncertainty"] = uncertaintyJson(*prediction.uncertainty, metrics.step);
  if (prediction.certificate) addCertificate(json, *prediction.certificate);
  addRates(json, prediction.work, metrics.step);
  if (prediction.utilisation > 0) json["flop_utilisation"] = prediction.utilisation;
  json["bubble_fraction"] = metrics.bubbleFraction;
  json["bubble_fraction_window"] = metrics.bubbleFractionWindow;
  json["steady_period_ns"] = prediction.steadyPeriod;
  json["fits"] = prediction.fits;
  if (prediction.jitter) json["jitter"] = jitterOf(*prediction.jitter);
  json["ranks"] = ranksOf(metrics, prediction.phases, prediction.processBytes);
  json["bubble_causes"] =
      groupsOf(prediction.explanation.groups, prediction.everyCause ? prediction.explanation.groups.size() : kCausesShown);
  json["idle_by_cause"] = idleOf(idleByCause(prediction.explanation));
  json["critical_path"] = pathOf(prediction.explanation.path, prediction.everyCause);
  if (prediction.everyCause) json["bubbles"] = bubblesOf(prediction.explanation.bubbles);
  json["stages"] = stagesOf(schedule, costs);
  return textOf(json);
}

std::string comparisonJson(const StepVerdict& judged, const std::string& sentence) {
  const Comparison& comparison = judged.verdict.comparison;
  Json json;
  json["makespan_error"] = comparison.makespanError;
  json["step_error"] = comparison.stepError;
  json["action_error"] = comparison.actionError;
  json["predicted_makespan_ns"] = comparison.predictedMakespan;
  json["measured_makespan_ns"] = comparison.measuredMakespan;
  json["predicted_step_ns"] = comparison.predictedStep;
  json["measured_step_ns"] = comparison.measuredStep;
  json["matched"] = comparison.matched;
  json["matched_split"] = comparison.matchedSplit;
  json["unmatched"] = comparison.unmatched;
  json["same_splits"] = comparison.splits == Splits::Same;
  json["by_kind"] = groupsOf(comparison.byKind);
  json["by_stage"] = groupsOf(comparison.byStage);
  json["by_rank"] = groupsOf(comparison.byRank);
  json["verdict"] = verdictOf(judged.verdict, sentence);
  json["predicted_reduction_waits_ns"] = judged.beforeWaits;
  json["measured_reduction_waits_ns"] = judged.afterWaits;
  return textOf(json);
}

std::string problemsJson(const Schedule& schedule, const std::vector<Problem>& problems) {
  Json json = shapeFields(schedule);
  json["valid"] = problems.empty();
  json["problems"] = Json::array();
  for (const Problem& problem : problems) {
    json["problems"].push_back({{"rank", problem.rank.value},
                                {"position", problem.position},
                                {"action", toString(problem.action)},
                                {"message", problem.message},
                                {"stops", nameOf(problem.stops)}});
  }
  return textOf(json);
}

std::string memoryJson(const std::vector<RankMemory>& ranks) {
  Json list = Json::array();
  for (const RankMemory& rank : ranks) {
    Json parts = Json::array();
    for (const MemoryPart& part : rank.parts) {
      Json microbatches = Json::array();
      for (const Microbatch m : part.microbatches) microbatches.push_back(m.value);
      parts.push_back({{"kind", nameOf(part.kind)}, {"stage", part.stage.value}, {"microbatches", microbatches}, {"bytes", part.bytes}});
    }
    const bool acts = rank.at.kind != ActionKind::Idle;
    list.push_back({{"rank", rank.rank.value}, {"peak_bytes", rank.peak}, {"at", acts ? toString(rank.at) : ""}, {"parts", parts}});
  }
  return list.dump();
}

std::string notCountedJson(const std::vector<NotCounted>& list) {
  auto json = nlohmann::ordered_json::array();
  for (const NotCounted& one : list) json.push_back({{"op", one.op}, {"module", one.module}, {"count", one.count}, {"why", one.why}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pw
