#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "backends/store/judged_runs.h"
#include "schedules/units.h"
#include "simulator/history/gate.h"

namespace pw::cli {
namespace {

struct GateArguments {
  GateOptions gate;
  int run = 0;         ///< 0: all that are comparable to the newest
  double percent = 5;  ///< the limit
  bool json = false;
};

/// A percentage: `5`, `2.5`, `5%`.
CLI::Validator aPercentage() {
  return {[](std::string& text) {
            std::string number = text;
            if (!number.empty() && number.back() == '%') number.pop_back();
            std::string error = numberFrom(0.01, 1000)(number);
            if (error.empty()) text = number;
            return error;
          },
          "0.01% to 1000%"};
}

std::string idList(const std::vector<RunId>& ids) {
  std::string text;
  for (const RunId id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id.value);
  return text;
}

std::string changeTable(const GateReport& report) {
  std::vector<std::vector<std::string>> rows{{"", "base", "now", "change", "at least", "at most"}};
  const auto add = [&](const std::string& name, const Change& change) {
    rows.push_back({name, formatDuration(change.before), formatDuration(change.after), signedPercent(change.slower),
                    signedPercent(change.low), signedPercent(change.high)});
  };
  add("step", report.step);
  for (std::size_t stage = 0; stage < report.stages.size(); ++stage) add(fmt::format("stage {}", stage), report.stages[stage]);
  return table(rows);
}

std::string gateText(const JudgedRuns& judged) {
  const auto& [run, runs, base, report] = judged;
  std::string text = gateText(report) + "\n\n" + changeTable(report);
  text += fmt::format("\n{}, {}, {}: {} {} against {} {} of the base.\n", run.plan.modelName, run.plan.schedule.name, howComputed(run),
                      runs.ids.size() == 1 ? "run" : "runs", idList(runs.ids), base.ids.size() == 1 ? "run" : "runs", idList(base.ids));
  if (!report.runsAreUnits) {
    text += "With fewer than four runs together, parts of runs are compared: what differs from one run to the next is not known.\n";
  }
  return text;
}

int runGate(const GateArguments& options) {
  GateOptions requested = options.gate;
  requested.limit = options.percent / 100;
  if (options.run > 0) requested.only = RunId(options.run);
  const JudgedRuns judged = judgeRuns(requested, warn);
  print(options.json ? versioned(judgedRunsJson(judged)) + "\n" : gateText(judged));
  return judged.report.verdict == GateVerdict::Slower ? kNo : kYes;
}

}  // namespace

Command addGate(CLI::App& app) {
  auto options = std::make_shared<GateArguments>();
  CLI::App* command =
      app.add_subcommand("gate", "Compare runs with a base of the same plan: exit status 1 if they got slower, and which stage");
  command->add_option("--store", options->gate.store, "Runs to judge: those of the newest run's plan")
      ->option_text("F.db (required)")
      ->required();
  command->add_option("--against", options->gate.against, "Runs of the base")->option_text("G.db (required)")->required();
  command->add_option("--limit", options->percent, "Slow-down that matters (default 5%)")->option_text("PERCENT")->transform(aPercentage());
  command->add_option("--run", options->run, "Judge this run alone")->option_text("ID")->check(aRunId());
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright gate --store runs.db --against base.db\n"
      "  pipewright gate --store runs.db --against base.db --limit 3%\n\n"
      "The answer is slower (status 1) where the step or a stage takes longer beyond chance and a slow-down by the limit cannot be "
      "excluded;\n"
      "not slower where it can be excluded; unclear (status 0) where times vary too much to tell, or where there are fewer than four runs\n"
      "together, which do not show what differs from run to run. First steps, which warm up, do not count.");
  return [options] { return runGate(*options); };
}

}  // namespace pw::cli
