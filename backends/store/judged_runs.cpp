#include "backends/store/judged_runs.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/history/gate_json.h"
#include "simulator/text/json_text.h"

namespace pw {
namespace {

void keepOnly(ComparableRuns& runs, RunId only) {
  for (std::size_t i = runs.ids.size(); i-- > 0;) {
    if (runs.ids[i] == only) continue;
    runs.ids.erase(runs.ids.begin() + static_cast<std::ptrdiff_t>(i));
    runs.times.erase(runs.times.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

nlohmann::ordered_json numbersOf(const std::vector<RunId>& ids) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const RunId id : ids) numbers.push_back(id.value);
  return numbers;
}

}  // namespace

JudgedRuns judgeRuns(const GateOptions& options, const std::function<void(const std::string& note)>& warn) {
  const RunStore store(options.store, RunStore::Mode::ReadOnly), base(options.against, RunStore::Mode::ReadOnly);
  for (const RunStore* one : {&store, &base}) {
    if (!one->note().empty()) warn(one->note());
  }
  JudgedRuns judged;
  judged.run = store.load(options.only);
  judged.runs = comparableRuns(store, judged.run);
  if (options.only) keepOnly(judged.runs, judged.run.id);
  if (judged.runs.ids.empty()) {
    throw UsageError(fmt::format("run {} of {} did not complete, or has no step after its first, which warms up; record a longer run",
                                 judged.run.id.value, options.store));
  }
  judged.base = comparableRuns(base, judged.run);
  if (judged.base.ids.empty()) {
    throw UsageError(fmt::format(
        "{} has no completed run of at least two steps to compare run {} of {} with{}; record one with the same plan", options.against,
        judged.run.id.value, options.store, judged.base.other ? fmt::format(" (the newest differs in {})", *judged.base.other) : ""));
  }
  judged.report = gate(judged.base.times, judged.runs.times, options.limit);
  return judged;
}

std::string judgedRunsJson(const JudgedRuns& judged) {
  auto document = ownJson(gateJson(judged.report));
  document["run_ids"] = numbersOf(judged.runs.ids);
  document["against_run_ids"] = numbersOf(judged.base.ids);
  return document.dump(2);
}

}  // namespace pw
