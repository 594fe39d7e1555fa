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
#include "backends/store/comparable_runs.h"
#include "backends/store/run_store.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/history/gate.h"
#include "simulator/history/gate_json.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
namespace {

struct GateOptions {
  std::string store, against;
  int run = 0;       ///< 0: the newest
  double limit = 5;  ///< percent
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

/// `F.db` in the base, or the reason why there is nothing to compare with.
ComparableRuns baseOf(const RunStore& base, const RunRecord& like, const GateOptions& options) {
  ComparableRuns runs = comparableRuns(base, like);
  if (!runs.ids.empty()) return runs;
  throw UsageError(fmt::format(
      "{} has no completed run of at least two steps to compare run {} of {} with{}; record one with the same plan", options.against,
      like.id.value, options.store, runs.other ? fmt::format(" (the newest differs in {})", *runs.other) : ""));
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

std::string textOf(const GateReport& report, const RunRecord& run, const ComparableRuns& base, const ComparableRuns& runs) {
  std::string text = gateText(report) + "\n\n" + changeTable(report);
  text += fmt::format("\n{}, {}, {}: {} {} against {} {} of the base.\n", run.plan.modelName, run.plan.schedule.name, howComputed(run),
                      runs.ids.size() == 1 ? "run" : "runs", idList(runs.ids), base.ids.size() == 1 ? "run" : "runs", idList(base.ids));
  if (!report.runsAreUnits) {
    text += "With fewer than four runs together, parts of runs are compared: what differs from one run to the next is not known.\n";
  }
  return text;
}

int runGate(const GateOptions& options) {
  const RunStore store(options.store, RunStore::Mode::ReadOnly), base(options.against, RunStore::Mode::ReadOnly);
  for (const RunStore* one : {&store, &base}) {
    if (!one->note().empty()) warn(one->note());
  }
  const RunRecord run = store.load(options.run > 0 ? std::optional(RunId(options.run)) : std::nullopt);
  ComparableRuns runs = comparableRuns(store, run);
  if (options.run > 0) {
    for (std::size_t i = runs.ids.size(); i-- > 0;) {
      if (runs.ids[i] == run.id) continue;
      runs.ids.erase(runs.ids.begin() + static_cast<std::ptrdiff_t>(i));
      runs.times.erase(runs.times.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (runs.ids.empty()) {
    throw UsageError(fmt::format("run {} of {} did not complete, or has no step after its first, which warms up; record a longer run",
                                 run.id.value, options.store));
  }
  const ComparableRuns before = baseOf(base, run, options);
  const GateReport report = gate(before.times, runs.times, options.limit / 100);
  if (options.json) {
    auto document = ownJson(gateJson(report));
    const auto numbers = [](const std::vector<RunId>& ids) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const RunId id : ids) list.push_back(id.value);
      return list;
    };
    document["run_ids"] = numbers(runs.ids);
    document["against_run_ids"] = numbers(before.ids);
    print(versioned(document.dump(2) + "\n"));
  } else {
    print(textOf(report, run, before, runs));
  }
  return report.verdict == GateVerdict::Slower ? kNo : kYes;
}

}  // namespace

Command addGate(CLI::App& app) {
  auto options = std::make_shared<GateOptions>();
  CLI::App* command =
      app.add_subcommand("gate", "Compare runs with a base of the same plan: exit status 1 if they got slower, and which stage");
  command->add_option("--store", options->store, "Runs to judge: those of the newest run's plan")
      ->option_text("F.db (required)")
      ->required();
  command->add_option("--against", options->against, "Runs of the base")->option_text("G.db (required)")->required();
  command->add_option("--limit", options->limit, "Slow-down that matters (default 5%)")->option_text("PERCENT")->transform(aPercentage());
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
