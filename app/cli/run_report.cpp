#include "app/cli/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/output.h"
#include "schedules/units.h"
#include "simulator/report/metrics.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
using Json = nlohmann::ordered_json;

namespace {

/// The results of the run other than its times.
void printVerdict(const RunResult& result, const std::string& store) {
  if (result.verification) {
    const Verification& v = *result.verification;
    const bool exact = v.equal && v.lossDifference == 0 && v.boundaryDifference == 0 && v.gradientDifference == 0;
    print(fmt::format(
        "verified against one rank on the same microbatches: {}\n",
        exact ? "loss, boundary values and all gradients equal, bit for bit"
        : v.equal
            ? fmt::format("equal within float32 rounding (loss differs by {:.2g}, boundary values by at most {:.2g}, gradients by {:.2g})",
                          v.lossDifference, v.boundaryDifference, v.gradientDifference)
        : v.notFinite ? "NOTHING TO COMPARE. " + v.firstDifference
                      : "NOT EQUAL. " + v.firstDifference));
  }
  if (result.exported) print(fmt::format("trace {}\n", describe(*result.exported)));
  const std::string count = counted(static_cast<int>(result.record.steps.size()), "step");
  if (const int overflows = result.skippedSteps - result.nonFiniteSteps; overflows > 0) {
    print(fmt::format("{} of {} skipped: gradients overflowed in float16 (loss scale now {:g})\n", overflows, count,
                      result.lossScale.value_or(1)));
  }
  if (result.nonFiniteSteps > 0)
    print(fmt::format("{} of {} skipped: the loss or gradients were not finite\n", result.nonFiniteSteps, count));
  if (!result.saved.empty()) print(fmt::format("saved after step {} in {}\n", result.firstStep + result.savedSteps, result.saved));
  if (result.id) print(fmt::format("stored as run {} in {}\n", result.id->value, store));
}

}  // namespace

std::string nonFinite(const std::vector<RankLog>& ranks, std::size_t step) {
  const std::optional<Rank> first = ranks.front().steps.at(step).notFinite;
  return first ? ranks.at(first->index()).steps.at(step).whatNotFinite : "";
}

std::string nonFiniteSentence(int step, const std::string& what, bool foundOperator) {
  return fmt::format("Step {} is not finite: {}. Nothing of this step was saved; use {}--skip-nonfinite to skip the updates of such steps",
                     step, what, foundOperator ? "" : "--find-nan to see which operator made it, or ");
}

void printJson(const RunResult& result) {
  const Metrics predicted = metricsOf(result.record.predicted);
  Json j{{"run_id", result.id ? Json(result.id->value) : Json(nullptr)},
         {"predicted_makespan_ns", predicted.makespan},
         {"predicted_step_ns", predicted.step},
         {"predicted_bubble_fraction", predicted.bubbleFraction},
         {"losses", Json::array()},
         {"steps", Json::array()}};
  for (const StepRecord& step : result.record.steps) {
    const Metrics m = metricsOf(step.measured);
    j["losses"].push_back(step.loss);
    Json ranks = Json::array();
    for (const RankMetrics& r : m.ranks) {
      ranks.push_back({{"rank", r.rank.value},
                       {"busy_ns", r.busy},
                       {"idle_ns", r.idle},
                       {"exposed_comm_ns", r.exposedComm},
                       {"peak_bytes", r.peakBytes},
                       {"peak_live_microbatches", r.peakLiveMicrobatches}});
    }
    j["steps"].push_back(
        {{"step", step.step},
         {"makespan_ns", m.makespan},
         {"step_ns", m.step},
         {"measured_bubble_fraction", m.bubbleFraction},
         {"ranks", ranks},
         {"samples_per_second", m.step > 0 ? static_cast<double>(result.record.plan.batch) * 1e9 / static_cast<double>(m.step) : 0.0}});
  }
  if (result.verification) {
    const Verification& v = *result.verification;
    j["verification"] = {{"equal", v.equal},
                         {"finite", !v.notFinite},
                         {"loss_difference", v.lossDifference},
                         {"boundary_difference", v.boundaryDifference},
                         {"gradient_difference", v.gradientDifference},
                         {"first_difference", v.firstDifference}};
  }
  if (result.exported) j["trace_check"] = ownJson(toJson(*result.exported));
  for (const double norm : result.gradientNorms) j["gradient_norms"].push_back(norm);
  if (result.countsSkipped) j["skipped_steps"] = result.skippedSteps;
  if (result.lossScale) j["loss_scale"] = *result.lossScale;
  if (!result.record.failure.empty()) j["failure"] = result.record.failure;
  for (std::size_t r = 0; r < result.residentPeak.size(); ++r) {
    j["processes"].push_back(
        {{"rank", r}, {"resident_peak_bytes", result.residentPeak[r]}, {"start_to_first_action_ns", result.startToFirstAction[r]}});
  }
  if (!result.saved.empty()) j["checkpoint"] = result.saved;
  print(versioned(j.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n");
}

void printText(const RunResult& result, const std::string& store) {
  const auto& steps = result.record.steps;
  if (steps.empty()) return printVerdict(result, store);
  const Metrics predicted = metricsOf(result.record.predicted);
  const Metrics measured = metricsOf(medianStep(result.record).measured);
  const std::string count = counted(static_cast<int>(steps.size()), "step");
  const bool isSynthetic = result.record.backend.ends_with(kSyntheticRun);
  if (isSynthetic) {
    print(fmt::format("{} of as long as the plan says: nothing was computed\n\n", count));
  } else {
    print(fmt::format("{}, loss {:.6f} before the first update", count, steps.front().loss));
    print(fmt::format("{}\n\n", steps.size() > 1 ? fmt::format(", {:.6f} before the last", steps.back().loss) : ""));
  }
  std::vector<std::vector<std::string>> rows{{"", "predicted", "measured", "error"}};
  const auto time = [&](const std::string& what, Ns expected, Ns actual) {
    rows.push_back({what, formatDuration(expected), formatDuration(actual),
                    expected == 0 ? "–" : signedPercent(static_cast<double>(actual - expected) / static_cast<double>(expected))});
  };
  time("step", predicted.step, measured.step);
  time("makespan", predicted.makespan, measured.makespan);
  rows.push_back({"bubble", percent(predicted.bubbleFraction), percent(measured.bubbleFraction), ""});
  for (std::size_t r = 0; r < predicted.ranks.size(); ++r)
    time(fmt::format("busy, rank {}", r), predicted.ranks[r].busy, measured.ranks[r].busy);
  for (std::size_t r = 0; r < predicted.ranks.size(); ++r) {
    rows.push_back({fmt::format("memory, rank {}", r), formatSize(predicted.ranks[r].peakBytes), formatSize(measured.ranks[r].peakBytes),
                    signedPercent(static_cast<double>(measured.ranks[r].peakBytes) /
                                      static_cast<double>(std::max<Bytes>(1, predicted.ranks[r].peakBytes)) -
                                  1)});
  }
  print(table(rows));
  if (!isSynthetic) {
    print(fmt::format("\n{:.1f} samples/s, {}\n",
                      static_cast<double>(result.record.plan.batch) * 1e9 / static_cast<double>(std::max<Ns>(measured.step, 1)),
                      steps.size() > 1 ? "in the median step after the first, which warms up"
                                       : "in a single step, which includes the warm-up: take more with --steps"));
  }
  printVerdict(result, store);
}

}  // namespace pw::cli
