#include "app/cli/text/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/text/output.h"
#include "schedules/units.h"
#include "simulator/job/times_of.h"
#include "simulator/plan/plan.h"
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
        exact     ? "loss, boundary values and all gradients equal, bit for bit"
        : v.equal ? fmt::format("equal within rounding (loss differs by {:.2g}, boundary values by at most {:.2g}, gradients by {:.2g})",
                                v.lossDifference, v.boundaryDifference, v.gradientDifference)
        : v.notFinite ? "NOTHING TO COMPARE. " + v.firstDifference
                      : "NOT EQUAL. " + v.firstDifference));
  }
  if (result.exported) print(fmt::format("trace {}\n", describe(*result.exported)));
  const std::string count = counted(result.figures.size(), "step");
  if (const int overflows = result.skippedSteps - result.nonFiniteSteps; overflows > 0) {
    print(fmt::format("{} of {} skipped: gradients overflowed in float16 (loss scale now {:g})\n", overflows, count,
                      result.lossScale.value_or(1)));
  }
  if (result.nonFiniteSteps > 0)
    print(fmt::format("{} of {} skipped: the loss or gradients were not finite\n", result.nonFiniteSteps, count));
  if (!result.saved.empty()) print(fmt::format("saved after step {} in {}\n", result.firstStep + result.savedSteps, result.saved));
  if (result.id) print(fmt::format("stored as run {} in {}\n", result.id->value, store));
}

/// The members of an object as lines after `before`, without the closing brace.
std::string membersOf(const Json& object, std::string_view before) {
  if (object.empty()) return "";
  const std::string text = object.dump(1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{}{}", before, text.substr(1, text.size() - 3));  // "{" and "\n}"
}

/// A member that is a list with an element of each step, written piece by piece.
void printList(StepFigureFile& figures, const std::string& name, const std::function<Json(const StepFigures&)>& element) {
  constexpr std::size_t kPiece = 1 << 16;
  std::string text = fmt::format(",\n \"{}\": [", name);
  bool isFirst = true;
  figures.forEach([&](const StepFigures& step) {
    text += fmt::format("{}\n  {}", std::exchange(isFirst, false) ? "" : ",", element(step).dump());
    if (text.size() > kPiece) print(std::exchange(text, {}));
  });
  print(text + (isFirst ? "]" : "\n ]"));
}

Json stepJson(const StepFigures& step, const RunRecord& record) {
  const Metrics& m = step.metrics;
  Json ranks = Json::array();
  for (const RankMetrics& r : m.ranks) {
    ranks.push_back({{"rank", r.rank.value},
                     {"busy_ns", r.busy},
                     {"idle_ns", r.idle},
                     {"exposed_comm_ns", r.exposedComm},
                     {"peak_bytes", r.peakBytes},
                     {"peak_live_microbatches", r.peakLiveMicrobatches}});
  }
  const auto batch = static_cast<double>(record.plan.batch);
  Json json{{"step", step.step}, {"makespan_ns", m.makespan},
            {"step_ns", m.step}, {"measured_bubble_fraction", m.bubbleFraction},
            {"ranks", ranks},    {"samples_per_second", m.step > 0 ? batch * 1e9 / static_cast<double>(m.step) : 0.0}};
  if (const double utilisation = utilisationOf(record, m.step); utilisation > 0) json["flop_utilisation"] = utilisation;
  return json;
}

}  // namespace

double utilisationOf(const RunRecord& record, Ns step) {
  const Computing& planned = record.plan.profile.computing;
  const bool sameTf32 = planned.precision != DType::Unknown || planned.tf32 == record.facts.tf32;  // 16 bits leave none to round
  const bool samePeak = planned.precision == record.facts.precision && sameTf32;
  return record.facts.synthetic || !samePeak ? 0 : flopUtilisation(record.plan, step);
}

void printJson(RunResult& result) {
  const Metrics predicted = metricsOf(result.record.predicted);
  Json head{{"run_id", result.id ? Json(result.id->value) : Json(nullptr)},
            {"times", nameOf(timesOf(result.record.facts))},
            {"predicted_makespan_ns", predicted.makespan},
            {"predicted_step_ns", predicted.step},
            {"predicted_bubble_fraction", predicted.bubbleFraction}};
  if (const double utilisation = utilisationOf(result.record, predicted.step); utilisation > 0)
    head["predicted_flop_utilisation"] = utilisation;
  print(versioned(membersOf(head, "{")));
  printList(result.figures, "losses", [](const StepFigures& f) { return Json(f.loss); });
  printList(result.figures, "steps", [&](const StepFigures& f) { return stepJson(f, result.record); });
  if (result.figures.size() > 0 && result.figures.at(0).gradientNorm)
    printList(result.figures, "gradient_norms", [](const StepFigures& f) { return Json(f.gradientNorm.value_or(0)); });
  Json rest = Json::object();
  if (result.verification) {
    const Verification& v = *result.verification;
    rest["verification"] = {{"equal", v.equal},
                            {"finite", !v.notFinite},
                            {"loss_difference", v.lossDifference},
                            {"boundary_difference", v.boundaryDifference},
                            {"gradient_difference", v.gradientDifference},
                            {"first_difference", v.firstDifference}};
  }
  if (result.exported) rest["trace_check"] = ownJson(toJson(*result.exported));
  if (result.countsSkipped) rest["skipped_steps"] = result.skippedSteps;
  if (result.lossScale) rest["loss_scale"] = *result.lossScale;
  if (!result.record.failure.empty()) rest["failure"] = result.record.failure;
  for (std::size_t r = 0; r < result.residentPeak.size(); ++r) {
    rest["processes"].push_back(
        {{"rank", r}, {"resident_peak_bytes", result.residentPeak[r]}, {"start_to_first_action_ns", result.startToFirstAction[r]}});
  }
  if (!result.saved.empty()) rest["checkpoint"] = result.saved;
  print(membersOf(rest, ",") + "\n}\n");
}

void printText(RunResult& result, const std::string& store) {
  StepFigureFile& steps = result.figures;
  if (steps.size() == 0) return printVerdict(result, store);
  const Metrics predicted = metricsOf(result.record.predicted);
  const Metrics measured = steps.median().metrics;
  const std::string count = counted(steps.size(), "step");
  const bool isSynthetic = result.record.facts.synthetic;
  if (isSynthetic) {
    print(fmt::format("{}, rehearsed: actions took as long as the plan says, nothing was computed\n\n", count));
  } else {
    print(fmt::format("{}, loss {:.6f} before the first update", count, steps.at(0).loss));
    print(fmt::format("{}\n\n", steps.size() > 1 ? fmt::format(", {:.6f} before the last", steps.at(steps.size() - 1).loss) : ""));
  }
  std::vector<std::vector<std::string>> rows{{"", "predicted", isSynthetic ? "rehearsed" : "measured", "error"}};
  const auto time = [&](const std::string& what, Ns expected, Ns actual) {
    rows.push_back({what, formatDuration(expected), formatDuration(actual),
                    expected == 0 ? "–" : signedPercent(static_cast<double>(actual - expected) / static_cast<double>(expected))});
  };
  time("step", predicted.step, measured.step);
  time("makespan", predicted.makespan, measured.makespan);
  rows.push_back({"bubble", percent(predicted.bubbleFraction), percent(measured.bubbleFraction), ""});
  if (const double actual = utilisationOf(result.record, measured.step); actual > 0) {
    const double expected = utilisationOf(result.record, predicted.step);
    rows.push_back({"model FLOPs", fmt::format("{:.3g} %", 100 * expected), fmt::format("{:.3g} %", 100 * actual), ""});
  }
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

void printEvaluation(const EvaluationResult& result, const std::string& file, bool json) {
  if (json) {
    Json j{{"loss", result.loss}, {"samples", result.samples}, {"outputs", result.outputs}};
    if (!file.empty()) j["outputs_file"] = file;
    print(versioned(j.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n");
    return;
  }
  print(fmt::format("loss {:.6f} over {}, without dropout and gradients\n", result.loss, counted(result.samples, "sample")));
  if (!file.empty()) print(fmt::format("{} written to {}\n", counted(static_cast<int>(result.outputs.size()), "output"), file));
}

}  // namespace pw::cli
