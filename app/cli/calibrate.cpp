#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/job.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "backends/host/files.h"
#include "backends/store/past_runs.h"
#include "engine/planning/inputs/job_source.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/job/held_out.h"
#include "simulator/job/job_json.h"

namespace pw::cli {
namespace {

struct CalibrateOptions {
  std::string store, out;
  std::vector<std::string> jobs;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
  int run = 0;  ///< 0: the newest
  bool json = false;
};

std::string calibrationDocument(const CalibratedProfile& result) {
  const auto& [calibration, uncertainty, before, after] = result.report;
  nlohmann::ordered_json document{{"forward_factor", calibration.forward},
                                  {"backward_factor", calibration.backward},
                                  {"optimizer_factor", calibration.optimizer},
                                  {"per_action_ns", calibration.perAction},
                                  {"per_send_ns", calibration.perSend},
                                  {"per_message_ns", calibration.perMessage},
                                  {"error_before", before},
                                  {"error_after", after},
                                  {"deviation", uncertainty.deviation},
                                  {"run_ids", nlohmann::ordered_json::array()}};
  for (const RunId id : result.ids) document["run_ids"].push_back(id.value);
  return versioned(document.dump(2) + "\n");
}

std::string calibrationText(const CalibratedProfile& result) {
  const auto& [calibration, uncertainty, before, after] = result.report;
  std::string text = fmt::format("Calibrated by {}:\n", counted(static_cast<std::int64_t>(result.ids.size()), "run"));
  text +=
      table({{"", ""},
             {"forward", fmt::format("× {:.3f}", calibration.forward)},
             {"backward", fmt::format("× {:.3f}", calibration.backward)},
             {"optimizer", fmt::format("× {:.3f}", calibration.optimizer)},
             {"each action", "+ " + formatDuration(calibration.perAction)},
             {"each send", "+ " + formatDuration(calibration.perSend)},
             {"each message", fmt::format("{} {}", calibration.perMessage < 0 ? "−" : "+", formatDuration(abs(calibration.perMessage)))}});
  text += fmt::format("\nSteps were {} off what was predicted (median); {}, they are {} off.\n", percent(before),
                      result.ids.size() > 1 ? "predicted with a calibration by the other runs" : "with this calibration", percent(after));
  text += fmt::format("Predictions made from it have an error bar of {}: four of five steps are within.\n", formatErrorBar(uncertainty));
  return text;
}

// ---- Jobs ----------------------------------------------------------------------------------------------------------

/// Of the job's own schedule, and of others.
struct JobBars {
  std::optional<Uncertainty> own, others;

  explicit JobBars(const Job& job) : own(uncertaintyOf(job, job.schedule)), others(uncertaintyOfOthers(job)) {}
};

std::string jobDocument(const JobCalibration& result, const JobBars& bars) {
  using Json = nlohmann::ordered_json;
  const auto deviationOf = [](const std::optional<Uncertainty>& of) { return of ? Json(of->deviation) : Json(); };
  Json document{{"job", result.job.name},
                {"steps", usualSteps(result.job).size()},
                {"own_schedule_deviation", deviationOf(bars.own)},
                {"deviation", deviationOf(bars.others)},
                {"runs", result.job.uncertainty->runs},
                {"others", Json::array()}};
  for (const PredictedJob& one : result.others) {
    document["others"].push_back(
        {{"job", one.name}, {"predicted_step_ns", one.predicted}, {"measured_step_ns", one.measured}, {"error", one.error}});
  }
  return versioned(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string jobText(const JobCalibration& result, const JobBars& bars) {
  std::string text = fmt::format("{}: {}, {}\n", result.job.name, shapeText(result.job), stepsText(result.job));
  if (result.ofSteps)
    text += fmt::format("Half of the steps, predicted from the other half, are {} off (root mean square).\n", percent(*result.ofSteps));
  if (!result.others.empty()) {
    std::vector<std::vector<std::string>> rows{{"predicted from it", "predicted step", "measured", "error"}};
    for (const PredictedJob& one : result.others)
      rows.push_back({one.name, formatDuration(one.predicted), formatDuration(one.measured), signedPercent(one.error)});
    text += "\n" + table(rows) + "\n";
  }
  if (bars.own) text += fmt::format("Predictions of its own schedule have an error bar of {}.\n", formatErrorBar(*bars.own));
  if (bars.others)
    text += fmt::format("Predictions of other schedules have an error bar of {}: four of five steps are within.\n",
                        formatErrorBar(*bars.others));
  return text;
}

int calibrateFromJobs(const CalibrateOptions& options) {
  if (options.run > 0) throw UsageError("--run selects a run of a store; add --store F.db, or omit it");
  std::vector<Job> jobs;
  for (const std::string& path : options.jobs) jobs.push_back(*loadJob({.paths = {path}}, byteProgress("import", options.progressStyle)));
  const JobCalibration result = calibrateJob(jobs.front(), std::span(jobs).subspan(1));
  const JobBars bars(result.job);
  writeFile(options.out, toJson(result.job));
  print(options.json ? jobDocument(result, bars)
                     : jobText(result, bars) + fmt::format("Written to {}; simulate and search it with --costs-from.\n", options.out));
  return kYes;
}

int runCalibrate(const CalibrateOptions& options) {
  if (options.jobs.empty() == options.store.empty())
    throw UsageError("calibrate takes --store F.db, or jobs (traces or what `pipewright import` wrote), and only one of these");
  if (!options.jobs.empty()) return calibrateFromJobs(options);
  const RunStore store(options.store, RunStore::Mode::ReadOnly);
  if (!store.note().empty()) warn(store.note());
  const CalibratedProfile result = calibratedBy(store, options.run > 0 ? std::optional(RunId(options.run)) : std::nullopt);
  writeFile(options.out, toJson(result.profile));
  print(options.json ? calibrationDocument(result) : calibrationText(result) + fmt::format("Written to {}.\n", options.out));
  return kYes;
}

}  // namespace

Command addCalibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate",
      "Bring a profile to what runs measured, so that predictions get closer and have error bars; or give a job its error bars");
  command
      ->add_option("JOB", options->jobs,
                   "Instead of runs: a job (pipewright import) or trace, and further ones of the same model in other schedules or sizes, "
                   "each a file or folder, which are predicted from the first")
      ->option_text(" ");
  command->add_option("--store", options->store, "Runs, all planned from one profile")->option_text("F.db");
  command->add_option("--out", options->out, "Write the calibrated profile, or job, here")->option_text("F.json (required)")->required();
  command->add_option("--run", options->run, "Calibrate the profile of this run's plan (default: of the newest that can be used)")
      ->option_text("ID")
      ->check(aRunId());
  addProgress(*command, options->progressStyle);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright calibrate --store runs.db --out calibrated.json     then: pipewright plan MODEL.pt2 --profile calibrated.json\n"
      "  pipewright calibrate job.json other.json --out calibrated.json  then: pipewright search --costs-from calibrated.json --ranks 8\n\n"
      "From runs it fits how much longer forwards, backwards and the optimizer take where ranks compute side by side, what passes between "
      "two\n"
      "actions, and what a message takes beyond the link's figures. A job's times are its own, and stay: it gets the error bar that its\n"
      "steps show, half of them predicted from the other half, and for other schedules what the further jobs show.");
  return [options] { return runCalibrate(*options); };
}

}  // namespace pw::cli
