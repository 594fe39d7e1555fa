#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "backends/host/files.h"
#include "backends/store/past_runs.h"
#include "schedules/units.h"

namespace pw::cli {
namespace {

struct CalibrateOptions {
  std::string store, out;
  int run = 0;  ///< 0: the newest
  bool json = false;
};

std::string calibrationDocument(const CalibratedProfile& result) {
  const auto& [calibration, uncertainty, before, after] = result.report;
  nlohmann::ordered_json document{{"forward_factor", calibration.forward},
                                  {"backward_factor", calibration.backward},
                                  {"optimizer_factor", calibration.optimizer},
                                  {"per_action_ns", calibration.perAction},
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
             {"each message", fmt::format("{} {}", calibration.perMessage < 0 ? "−" : "+", formatDuration(abs(calibration.perMessage)))}});
  text += fmt::format("\nSteps were {} off what was predicted (median); {}, they are {} off.\n", percent(before),
                      result.ids.size() > 1 ? "predicted with a calibration by the other runs" : "with this calibration", percent(after));
  text += fmt::format("Predictions made from it have an error bar of {}: four of five steps are within.\n", formatErrorBar(uncertainty));
  return text;
}

int runCalibrate(const CalibrateOptions& options) {
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
  CLI::App* command =
      app.add_subcommand("calibrate", "Bring a profile to what runs measured, so that predictions get closer and have error bars");
  command->add_option("--store", options->store, "Runs, all planned from one profile")->option_text("F.db (required)")->required();
  command->add_option("--out", options->out, "Write the calibrated profile here")->option_text("PROFILE.json (required)")->required();
  command->add_option("--run", options->run, "Calibrate the profile of this run's plan (default: of the newest that can be used)")
      ->option_text("ID")
      ->check(aRunId());
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright calibrate --store runs.db --out calibrated.json     then: pipewright plan MODEL.pt2 --profile calibrated.json\n\n"
      "Fitted are how much longer forwards, backwards and the optimizer take where ranks compute side by side, what passes between two\n"
      "actions, and what a message takes beyond the link's figures.");
  return [options] { return runCalibrate(*options); };
}

}  // namespace pw::cli
