#include <initializer_list>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/text/output.h"
#include "backends/store/run_store.h"
#include "schedules/units.h"

namespace pw::cli {
namespace {

struct RunsOptions {
  std::string store;
  bool json = false;
};

using Json = nlohmann::ordered_json;

Json valueJson(bool value) { return value; }
Json valueJson(DType value) { return precisionName(value); }
template <class Enum>
Json valueJson(std::optional<Enum> value) {
  return value ? nameOf(*value) : "";
}

Json runDocument(const RunSummary& run) {
  Json document{{"run_id", run.id.value},
                {"started_at", run.startedAt},
                {"model", run.model},
                {"schedule", run.schedule},
                {"backend", valueJson(run.transport)}};
  for (const RunColumn& column : kRunColumns) {
    std::visit([&](auto member) { document[column.name] = valueJson(run.facts.*member); }, column.member);
  }
  document.update({{"rank_count", run.ranks},
                   {"microbatches", run.microbatches},
                   {"step_count", run.steps},
                   {"predicted_step_ns", run.predictedStep},
                   {"median_measured_step_ns", run.medianMeasuredStep},
                   {"state", nameOf(run.state)},
                   {"failure", run.failure}});
  return document;
}

std::string runsDocument(const std::vector<RunSummary>& runs) {
  Json list = Json::array();
  for (const RunSummary& run : runs) list.push_back(runDocument(run));
  return Json{{"runs", list}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string endingOf(const RunSummary& run) {
  switch (run.state) {
    case RunState::Unfinished: return run.failure;
    case RunState::Completed: return "completed";
    case RunState::Failed: break;
  }
  return "failed: " + run.failure;
}

void append(std::vector<std::string>& row, std::initializer_list<std::string> cells) { row.insert(row.end(), cells); }

std::string runsText(const std::vector<RunSummary>& runs) {
  if (runs.empty()) return "no runs yet\n";
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"run", "started (UTC)", "model", "schedule", "backend"});
  for (const RunColumn& column : kRunColumns) {
    if (!column.title.empty()) rows.back().emplace_back(column.title);
  }
  append(rows.back(), {"ranks", "microbatches", "steps", "predicted", "measured", "error", "ended"});
  for (const RunSummary& run : runs) {
    const bool comparable = run.predictedStep > 0 && run.medianMeasuredStep > 0;
    const double error =
        comparable ? static_cast<double>(run.medianMeasuredStep - run.predictedStep) / static_cast<double>(run.predictedStep) : 0;
    const std::string started = run.startedAt.substr(0, 19);
    rows.push_back({fmt::format("{}", run.id.value), started.size() > 10 ? started.substr(0, 10) + " " + started.substr(11) : started,
                    run.model, run.schedule, howComputed(run)});
    for (const RunColumn& column : kRunColumns) {
      if (!column.title.empty()) rows.back().push_back(orDash(textOf(column, run.facts)));
    }
    append(rows.back(),
           {fmt::format("{}", run.ranks), fmt::format("{}", run.microbatches), fmt::format("{}", run.steps),
            run.predictedStep > 0 ? formatDuration(run.predictedStep) : "–",
            run.medianMeasuredStep > 0 ? formatDuration(run.medianMeasuredStep) + (run.facts.synthetic ? " rehearsed" : "") : "–",
            comparable ? signedPercent(error) : "–", endingOf(run)});
  }
  return table(rows);
}

int runRuns(const RunsOptions& options) {
  const RunStore store(options.store, RunStore::Mode::ReadOnly);
  if (!store.note().empty()) warn(store.note());
  const std::vector<RunSummary> runs = store.list();
  print(options.json ? versioned(runsDocument(runs)) : runsText(runs));
  return kYes;
}

}  // namespace

Command addRuns(CLI::App& app) {
  auto options = std::make_shared<RunsOptions>();
  CLI::App* command = app.add_subcommand("runs", "List the runs of a store, oldest first");
  command->add_option("--store", options->store, "File that `pipewright run --store` wrote")->option_text("F.db (required)")->required();
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Example:\n"
      "  pipewright runs --store runs.db\n\n"
      "Times are those of a whole step: predicted, and the median of the measured steps, or of those that --synthetic rehearsed.");
  return [options] { return runRuns(*options); };
}

}  // namespace pw::cli
