#include "simulator/job/explain_job_json.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "simulator/job/between_steps.h"
#include "simulator/report/bubble_causes.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

double share(Ns part, Ns whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

Json culprits(const std::vector<Culprit>& list, const char* key) {
  Json json = Json::array();
  for (const Culprit& one : list) {
    Json entry;
    if (one.name.empty() || one.number >= 0)
      entry[key] = one.number;
    else
      entry[key] = one.name;
    entry["slowdown"] = one.slowdown;
    json.push_back(std::move(entry));
  }
  return json;
}

Json workers(const JobShape& shape, const Job& job, const Slowdowns& slow) {
  Json json = Json::array();
  for (const Culprit& one : slow.byWorker) {
    const auto worker = static_cast<std::size_t>(one.number);
    const std::size_t copy = worker / shape.ranks, tensor = static_cast<std::size_t>(job.tensor);
    json.push_back(Json{{"worker", worker},
                        {"replica", copy / tensor},
                        {"tensor", copy % tensor},
                        {"rank", worker % shape.ranks},
                        {"slowdown", one.slowdown}});
  }
  return json;
}

Json path(const JobExplanation& explanation) {
  Json byKind = Json::array(), byRank = Json::array();
  std::vector<std::pair<std::string, Ns>> kinds(explanation.path.byKind.begin(), explanation.path.byKind.end());
  std::ranges::stable_sort(kinds, std::ranges::greater(), [](const auto& k) { return k.second; });
  for (const auto& [kind, time] : kinds)
    byKind.push_back(Json{{"kind", kind}, {"ns", time}, {"share", share(time, explanation.usual.step)}});
  for (std::size_t r = 0; r < explanation.path.byRank.size(); ++r)
    byRank.push_back(
        Json{{"rank", r}, {"ns", explanation.path.byRank[r]}, {"share", share(explanation.path.byRank[r], explanation.usual.step)}});
  return Json{{"ns", explanation.usual.step}, {"by_kind", std::move(byKind)}, {"by_rank", std::move(byRank)}};
}

Json bubbles(const JobExplanation& explanation) {
  Json json = Json::array();
  const Ns all = explanation.metrics.ranks.size() * explanation.metrics.makespan;
  for (const BubbleGroup& group : explanation.causes.groups)
    json.push_back(Json{{"rank", group.rank.value},
                        {"phase", nameOf(group.phase)},
                        {"cause", nameOf(causeOf(group.phase, group.message))},
                        {"caused_by_rank", group.cause.value},
                        {"idle_ns", group.idle},
                        {"share", share(group.idle, all)}});
  return json;
}

Json hostWaits(const JobExplanation& explanation) {
  Json json = Json::array();
  for (std::size_t r = 0; r < explanation.hostWaits.size(); ++r)
    json.push_back(
        Json{{"rank", r}, {"ns", explanation.hostWaits[r]}, {"share", share(explanation.hostWaits[r], explanation.metrics.makespan)}});
  return json;
}

Json stallJson(const JobShape& shape, const Job& job, const Stall& stall) {
  Json json{{"step", job.steps[stall.step].name}, {"worker", stall.worker.value}};
  if (stall.operation >= 0)
    json["before"] = job.operations[static_cast<std::size_t>(stall.operation)].name;
  else
    json["before"] = toString(shape.copySlots[static_cast<std::size_t>(stall.slot) % shape.slotsOfCopy()].action);
  json["message"] = stall.message;
  json["lost_ns"] = stall.lost;
  return json;
}

Json worst(const JobShape& shape, const Job& job, const JobExplanation& explanation) {
  Json json = Json::array();
  for (const WorstStep& step : explanation.worst) {
    Json entry{{"step", job.steps[step.step].name},
               {"step_ns", job.steps[step.step].step},
               {"slowdown", step.slowdown},
               {"above_usual", step.aboveUsual}};
    if (step.kind) entry["kind"] = explanation.slowdowns.byKind[*step.kind].name;
    if (step.rank) entry["rank"] = *step.rank;
    if (step.replica) entry["replica"] = *step.replica;
    entry["stalls"] = Json::array();
    for (std::size_t i = 0; i < std::min<std::size_t>(step.stalls.size(), 8); ++i)
      entry["stalls"].push_back(stallJson(shape, job, step.stalls[i]));
    json.push_back(std::move(entry));
  }
  return json;
}

Json between(const Job& job) {
  const std::optional<BetweenSteps> between = betweenSteps(job);
  if (!between) return nullptr;
  return Json{{"median_ns", between->usual},
              {"longest_ns", between->longest},
              {"longest_before", job.steps[between->longestBefore].name},
              {"share", between->share}};
}

Json steps(const Job& job, const JobExplanation& explanation) {
  Json json = Json::array();
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    const ReplayError& error = explanation.replay[k];
    const Ns replayed = explanation.slowdowns.replayedSteps[k], ideal = explanation.slowdowns.ideal;
    json.push_back(Json{{"step", job.steps[k].name},
                        {"step_ns", job.steps[k].step},
                        {"step_without_waits_ns", replayed},
                        {"slowdown", ideal > 0 ? static_cast<double>(replayed) / static_cast<double>(ideal) : 1},
                        {"makespan_ns", error.measured},
                        {"replayed_makespan_ns", error.replayed},
                        {"makespan_error", error.makespan},
                        {"start_error", error.start}});
  }
  return json;
}

}  // namespace

std::string explanationJson(const JobShape& shape, const Job& job, const JobExplanation& explanation) {
  const Slowdowns& slow = explanation.slowdowns;
  Json json;
  json["name"] = job.name;
  json["schedule"] = job.schedule.name;
  json["ranks"] = shape.ranks;
  json["stages"] = job.schedule.placement.stages();
  json["microbatches"] = job.schedule.microbatches;
  json["replicas"] = job.replicas;
  json["tensor"] = job.tensor;
  json["times"] = nameOf(job.times);
  json["step_ns"] = slow.measured;
  json["step_without_waits_ns"] = slow.replayed;
  json["ideal_ns"] = slow.ideal;
  json["slowdown"] = slow.slowdown;
  json["waits"] = slow.waits;
  json["by_kind"] = culprits(slow.byKind, "kind");
  json["by_stage"] = culprits(slow.byStage, "stage");
  json["by_rank"] = culprits(slow.byRank, "rank");
  json["by_replica"] = culprits(slow.byReplica, "replica");
  json["by_worker"] = workers(shape, job, slow);
  json["makespan_ns"] = explanation.metrics.makespan;
  json["bubble_fraction"] = explanation.metrics.bubbleFraction;
  json["critical_path"] = path(explanation);
  json["bubbles"] = bubbles(explanation);
  json["host_waits"] = hostWaits(explanation);
  json["between_steps"] = between(job);
  json["worst_steps"] = worst(shape, job, explanation);
  json["worst_in_common"] = commonText(explanation);
  json["steps"] = steps(job, explanation);
  json["stragglers"] = stragglerText(explanation);
  json["notes"] = job.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pw
