#include "simulator/page/content.h"

#include <algorithm>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/report/error_rows.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/report/step_verdict.h"
#include "simulator/text/counted.h"
#include "simulator/text/percent.h"

namespace pw {
namespace {

std::string shareOf(Ns part, Ns whole) { return whole > 0 ? percent(static_cast<double>(part) / static_cast<double>(whole)) : "–"; }

PageTable errorTable(const std::string& title, const std::vector<GroupError>& groups, const Page& page) {
  return {title, {"", page.lanes[0].name, page.lanes[1].name, "error", "difference", "share"}, errorRows(groups, false)};
}

}  // namespace

void addPlan(Page& page, const Plan& plan, const Trace& predicted) {
  const Metrics metrics = metricsOf(predicted);
  const Shape shape = shapeOf(plan.schedule);
  page.facts.emplace_back("model", plan.modelName);
  page.facts.emplace_back("schedule", plan.schedule.name);
  page.facts.emplace_back("ranks",
                          plan.replicas > 1 ? fmt::format("{} × {} replicas", shape.ranks, plan.replicas) : std::to_string(shape.ranks));
  page.facts.emplace_back("stages", std::to_string(shape.stages));
  page.facts.emplace_back("microbatches", fmt::format("{} of {}", shape.microbatches, counted(plan.microbatchSize, "sample")));
  page.facts.emplace_back("step", formatDuration(metrics.step));
  page.facts.emplace_back("makespan", formatDuration(metrics.makespan));
  page.facts.emplace_back("lower bound", formatDuration(lowerBound(plan.schedule, plan.costs)));
  page.facts.emplace_back("bubble", percent(metrics.bubbleFraction));
  page.facts.emplace_back("times", sourceOf(plan.profile, shape.ranks));
  PageTable stages{"Stages", {"stage", "rank", "begins at", "F", "B", "I", "W", "parameters", "activations"}, {}};
  for (std::size_t s = 0; s < plan.costs.stages.size() && s < plan.schedule.placement.stages(); ++s) {
    const StageCost& cost = plan.costs.stages[s];
    stages.rows.push_back({std::to_string(s), std::to_string(plan.schedule.placement.rankOfStage[s].value),
                           s == 0 || s > plan.splitNames.size() ? "–" : plan.splitNames[s - 1], formatDuration(cost.forward),
                           formatDuration(cost.backward), formatDuration(cost.backwardInput), formatDuration(cost.backwardWeight),
                           formatSize(cost.parameterBytes), formatSize(cost.activationBytes)});
  }
  page.tables.push_back(std::move(stages));
}

void addRanks(Page& page) {
  for (const PageLane& lane : page.lanes) {
    const Metrics metrics = metricsOf(*lane.trace);
    PageTable table{fmt::format("Ranks, {}", lane.name), {"rank", "busy", "idle", "bubble", "exposed messages", "peak memory", "live"}, {}};
    for (const RankMetrics& rank : metrics.ranks) {
      table.rows.push_back({std::to_string(rank.rank.value), formatDuration(rank.busy), formatDuration(rank.idle),
                            shareOf(rank.idle, metrics.makespan), formatDuration(rank.exposedComm),
                            rank.peakBytes > 0 ? formatSize(rank.peakBytes) : "–", std::to_string(rank.peakLiveMicrobatches)});
    }
    page.tables.push_back(std::move(table));
  }
}

void addErrors(Page& page, const Plan& plan, const ReductionGroups& reductions) {
  const StepVerdict judged = judgePrediction(*page.lanes[0].trace, {*page.lanes[1].trace, reductions}, plan.schedule, plan.costs);
  page.sentence = verdictText(judged.verdict);
  if (judged.afterWaits > 0) page.sentence += " " + waitsText(page.lanes[1].name, judged.afterWaits);
  const Comparison& c = judged.verdict.comparison;
  PageTable whole{"Error", {"", page.lanes[0].name, page.lanes[1].name, "error"}, {}};
  whole.rows.push_back({"makespan", formatDuration(c.predictedMakespan), formatDuration(c.measuredMakespan),
                        errorText(c.predictedMakespan, c.measuredMakespan)});
  whole.rows.push_back(
      {"step", formatDuration(c.predictedStep), formatDuration(c.measuredStep), errorText(c.predictedStep, c.measuredStep)});
  whole.rows.push_back({"mean start error", "", percent(c.actionError), fmt::format("{} matched", counted(c.matched, "action"))});
  page.tables.push_back(std::move(whole));
  page.tables.push_back(errorTable("Error by kind", c.byKind, page));
  page.tables.push_back(errorTable("Error by stage", c.byStage, page));
  page.tables.push_back(errorTable("Error by rank", c.byRank, page));
}

}  // namespace pw
