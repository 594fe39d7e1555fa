#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/job.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "app/cli/text/run_report.h"
#include "backends/store/run_store.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/run_verdict.h"
#include "engine/run/backward.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/job/times_of.h"
#include "simulator/plan/model_cut.h"
#include "simulator/report/compare.h"
#include "simulator/report/error_rows.h"
#include "simulator/report/json.h"
#include "simulator/report/step_verdict.h"
#include "simulator/report/verdict.h"
#include "simulator/text/json_text.h"
#include "simulator/timeline/text.h"

namespace pw::cli {
namespace {

struct CompareOptions {
  std::string store, trace, withTrace;
  std::string patterns;  ///< of names in the traces
  int run = 0;           ///< 0: the newest
  int with = 0;          ///< 0: with the prediction
  bool json = false;
};

/// The two traces and their names; the first is the reference.
struct Pair {
  const Trace* before = nullptr;
  const Trace* after = nullptr;
  std::string beforeName, afterName;    ///< column heads
  std::string beforeTitle, afterTitle;  ///< above the timelines
  std::string beforeText, afterText;    ///< in sentences: `the run`
  double beforeUse = 0, afterUse = 0;   ///< of the model's FLOPs; 0: not known, or nothing was computed
  Ns beforeWaits = 0, afterWaits = 0;   ///< for ranks to reduce gradients with, over all ranks; not in the groups
  bool sendsCompare = true;             ///< not a prediction's with a run's, which end when their receiver takes them

  /// Heads how far apart they are.
  [[nodiscard]] std::string apart() const { return beforeName == "predicted" ? "error" : "change"; }
};

std::string groupTable(const char* title, const std::vector<GroupError>& groups, const Pair& pair) {
  std::vector<std::vector<std::string>> rows = errorRows(groups, pair.sendsCompare);
  rows.insert(rows.begin(), {title, pair.beforeName, pair.afterName, pair.apart(), "difference", "share"});
  return table(rows);
}

void printDrawn(const Pair& pair) {
  Ns span = 0;
  for (const Trace* trace : {pair.before, pair.after}) {
    for (const Span& s : trace->spans) span = std::max(span, s.end);
  }
  const TextOptions options{terminalColumns(), wantsColour(), span};
  print(pair.beforeTitle + "\n");
  printDrawing(toText(*pair.before, options));
  print("\n" + pair.afterTitle + "\n");
  printDrawing(toText(*pair.after, options));
}

std::string comparisonText(const Verdict& verdict, const std::string& sentence, const Pair& pair) {
  const Comparison& comparison = verdict.comparison;
  std::string text = fmt::format("\n{}\n\n", sentence);
  std::vector<std::vector<std::string>> rows{
      {"", pair.beforeName, pair.afterName, pair.apart()},
      {"makespan", formatDuration(comparison.predictedMakespan), formatDuration(comparison.measuredMakespan),
       signedPercent(comparison.makespanError)},
      {"step", formatDuration(comparison.predictedStep), formatDuration(comparison.measuredStep), signedPercent(comparison.stepError)}};
  const auto share = [](double utilisation) { return utilisation > 0 ? fmt::format("{:.3g} %", 100 * utilisation) : "–"; };
  if (pair.beforeUse > 0 || pair.afterUse > 0) rows.push_back({"model FLOPs", share(pair.beforeUse), share(pair.afterUse), ""});
  text += table(rows);
  text += fmt::format("\nOn average actions start {} of the makespan away from where they were {}", percent(comparison.actionError),
                      pair.beforeName == "predicted" ? "predicted" : "in " + pair.beforeText);
  text += fmt::format(" ({} matched{}{}).\n", counted(comparison.matched, "action"),
                      comparison.matchedSplit > 0 ? fmt::format(", of them {} B with I", comparison.matchedSplit) : "",
                      comparison.unmatched > 0 ? fmt::format(", {} found in one only", comparison.unmatched) : "");
  text += "Where the difference comes from, summed over the step:\n";
  for (const auto& [title, groups] :
       {std::pair{"kind", &comparison.byKind}, {"stage", &comparison.byStage}, {"rank", &comparison.byRank}}) {
    if (!groups->empty()) text += "\n" + groupTable(title, *groups, pair);
  }
  for (const auto& [name, waits] : {std::pair{pair.beforeText, pair.beforeWaits}, {pair.afterText, pair.afterWaits}}) {
    if (waits > 0) text += fmt::format("\n{}\n", waitsText(name, waits));
  }
  text += "\nA message (SEND) of a run ends when its receiver takes it; the delay it causes is counted as WAIT.\n";
  return text;
}

/// `sentence`: of the verdict. `with`, `withStep`: null where the run is compared with its prediction.
std::string comparisonDocument(const StepVerdict& judged, const std::string& sentence, const RunRecord& run, const StepRecord& step,
                               const RunRecord* with, const StepRecord* withStep) {
  const Verdict& verdict = judged.verdict;
  auto document = ownJson(comparisonJson(judged, sentence));
  document["run_id"] = run.id.value;
  document["state"] = nameOf(run.state);
  document["times"] = nameOf(timesOf(run.facts));
  document["step"] = step.step;
  if (with != nullptr) {
    document["with_run_id"] = with->id.value;
    document["with_step"] = withStep->step;
    document["with_times"] = nameOf(timesOf(with->facts));
  }
  const double before = utilisationOf(run, verdict.comparison.predictedStep);
  const double after = utilisationOf(with != nullptr ? *with : run, verdict.comparison.measuredStep);
  if (before > 0) document["predicted_flop_utilisation"] = before;
  if (after > 0) document["measured_flop_utilisation"] = after;
  if (verdict.replayed) document["replayed_makespan_ns"] = *verdict.replayed;
  return versioned(document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string titleOf(const RunRecord& run, const StepRecord& step, int steps) {
  const std::string which = steps == 1 ? "its only step" : fmt::format("step {}, the median of {} after warm-up", step.step, steps - 1);
  return fmt::format("run {}: {}, {}, {}, {}", run.id.value, run.plan.modelName, run.plan.schedule.name, howComputed(run), which);
}

/// Of a run that did not complete: its steps are those that ended before.
void printEnd(const RunRecord& run, int steps) {
  if (run.state == RunState::Completed) return;
  print(fmt::format("\nrun {} {} after {}: {}\n", run.id.value, run.state == RunState::Failed ? "failed" : "is unfinished",
                    counted(steps, "step"), run.failure));
}

std::optional<RunId> idOf(int number) { return number > 0 ? std::optional<RunId>(RunId(number)) : std::nullopt; }

/// The step that stands for a run, and how many the run has.
struct StoredStep {
  StepRecord step;
  int steps = 0;
};

StoredStep medianOf(const RunStore& store, const RunRecord& run) { return {store.loadStep(run, {}), store.stepCount(run.id)}; }

/// What the time beside computing is.
std::string besidesText(const Verdict& verdict, const RunRecord& run) {
  const bool isDynamic = run.facts.backward == Backward::Dynamic;
  if (!verdict.replayed) return isDynamic ? "This run followed no schedule.\n" : "";
  const std::string makespan = formatDuration(*verdict.replayed);
  const std::string error = errorText(*verdict.replayed, verdict.comparison.measuredMakespan);
  return isDynamic ? fmt::format(
                         "This run followed no schedule. By its plan's, the measured compute durations would make {}: without it the "
                         "step took {}.\n",
                         makespan, error)
                   : fmt::format(
                         "Simulated with the {} compute durations the makespan is {}: running it took {} beyond computing and "
                         "predicted messages.\n",
                         nameOf(timesOf(run.facts)), makespan, error);
}

int compareWithPrediction(const RunRecord& run, const StoredStep& chosen, bool json) {
  const StepRecord& step = chosen.step;
  const StepVerdict judged = judgeRun(run, step.measured);
  const Verdict& verdict = judged.verdict;
  const std::string sentence = run.facts.synthetic ? verdictText(verdict, "its prediction", "the rehearsal") : verdictText(verdict);
  const std::string times(nameOf(timesOf(run.facts)));
  const Pair pair{&run.predicted,
                  &step.measured,
                  "predicted",
                  times,
                  "predicted",
                  times + ", " + titleOf(run, step, chosen.steps),
                  "the prediction",
                  run.facts.synthetic ? "the rehearsal" : "the run",
                  utilisationOf(run, verdict.comparison.predictedStep),
                  utilisationOf(run, verdict.comparison.measuredStep),
                  judged.beforeWaits,
                  judged.afterWaits,
                  false};
  if (json) {
    print(comparisonDocument(judged, sentence, run, step, nullptr, nullptr));
    return kYes;
  }
  printDrawn(pair);
  print(comparisonText(verdict, sentence, pair));
  print(besidesText(verdict, run));
  printEnd(run, chosen.steps);
  return kYes;
}

int compareRuns(const RunRecord& run, const StoredStep& chosen, const RunRecord& with, const StoredStep& chosenWith, bool json) {
  const StepRecord &step = chosen.step, &withStep = chosenWith.step;
  const StepVerdict judged = judgeSteps({step.measured}, {withStep.measured}, splitsOf(cutOf(run.plan), cutOf(with.plan)));
  const Verdict& verdict = judged.verdict;
  const Pair pair{&step.measured,
                  &withStep.measured,
                  fmt::format("run {}", run.id.value),
                  fmt::format("run {}", with.id.value),
                  titleOf(run, step, chosen.steps),
                  titleOf(with, withStep, chosenWith.steps),
                  fmt::format("run {}", run.id.value),
                  fmt::format("run {}", with.id.value),
                  utilisationOf(run, verdict.comparison.predictedStep),
                  utilisationOf(with, verdict.comparison.measuredStep),
                  judged.beforeWaits,
                  judged.afterWaits};
  const std::string sentence = verdictText(verdict, pair.beforeName, pair.afterName);
  if (json) {
    print(comparisonDocument(judged, sentence, run, step, &with, &withStep));
    return kYes;
  }
  printDrawn(pair);
  print(comparisonText(verdict, sentence, pair));
  printEnd(run, chosen.steps);
  printEnd(with, chosenWith.steps);
  return kYes;
}

/// Two steps of any origin, the median one of each trace.
int compareTraces(const CompareOptions& options) {
  if (!options.store.empty() || options.run > 0 || options.with > 0)
    throw UsageError("--trace and --with-trace compare two files; omit --store, --run and --with");
  if (options.trace.empty() || options.withTrace.empty()) throw UsageError("--trace and --with-trace go together; give both");
  const StandingStep before = standingStep({.paths = {options.trace}, .patterns = options.patterns}),
                     after = standingStep({.paths = {options.withTrace}, .patterns = options.patterns});
  const StepVerdict judged{judge(before.trace, after.trace, {}, splitsOf(before.cut, after.cut)), before.reductionWaits,
                           after.reductionWaits};
  const Verdict& verdict = judged.verdict;
  if (verdict.comparison.matched == 0)
    throw UsageError(fmt::format("no action of {} is in {}: they name no kind, stage, microbatch and rank that both have", options.trace,
                                 options.withTrace));
  Pair pair{&before.trace,     &after.trace,       "first", "second", before.title,          after.title,
            "the first trace", "the second trace", 0,       0,        before.reductionWaits, after.reductionWaits};
  pair.sendsCompare = (before.times == TimesOf::Predicted) == (after.times == TimesOf::Predicted);
  const bool isOfPredictions = before.times == TimesOf::Predicted && after.times == TimesOf::Predicted;
  const std::string sentence = verdictText(verdict, "the first", "the second", isOfPredictions ? Happened::No : Happened::Yes);
  if (options.json) {
    auto document = ownJson(comparisonJson(judged, sentence));
    document["trace"] = before.title;
    document["with_trace"] = after.title;
    print(versioned(document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
    return kYes;
  }
  printDrawn(pair);
  print(comparisonText(verdict, sentence, pair));
  for (const auto& [which, step] : {std::pair{"first", &before}, {"second", &after}}) {
    for (const std::string& note : step->notes) print(fmt::format("note of the {}: {}\n", which, note));
  }
  return kYes;
}

int runCompare(const CompareOptions& options) {
  if (!options.trace.empty() || !options.withTrace.empty()) return compareTraces(options);
  if (!options.patterns.empty()) throw UsageError("--patterns is for names in traces; add --trace and --with-trace, or omit it");
  if (options.store.empty()) throw UsageError("compare needs --store F.db, or --trace A and --with-trace B");
  const RunStore store(options.store, RunStore::Mode::ReadOnly);
  if (!store.note().empty()) warn(store.note());
  const RunRecord run = store.load(idOf(options.run));
  const StoredStep chosen = medianOf(store, run);
  if (options.with == 0) return compareWithPrediction(run, chosen, options.json);
  const RunRecord with = store.load(idOf(options.with));
  return compareRuns(run, chosen, with, medianOf(store, with), options.json);
}

}  // namespace

Command addCompare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "Compare predicted with measured times: how large the error is, and where it comes from");
  command->add_option("--store", options->store, "File that `pipewright run --store` wrote")->option_text("F.db");
  command->add_option("--run", options->run, "Run to compare (default: the newest)")->option_text("ID")->check(aRunId());
  command->add_option("--with", options->with, "Compare with this run instead of the prediction")->option_text("ID")->check(aRunId());
  command->add_option("--trace", options->trace, "Compare the median step of this trace, plan or job, of any tool")->option_text("A");
  command->add_option("--with-trace", options->withTrace, "With that of this one, task by task")->option_text("B");
  declarePatterns(*command, options->patterns);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright compare --store runs.db\n"
      "  pipewright compare --store runs.db --run 1 --with 2\n"
      "  pipewright compare --trace before.json.gz --with-trace after.json.gz\n\n"
      "A run is represented by its median step after the first, which warms up. Errors are signed: + took longer.\n"
      "With --with, the JSON fields predicted_* are those of the first run.\n"
      "Reductions of gradients count from when the last of their ranks begins them; waits for it are listed separately.");
  return [options] { return runCompare(*options); };
}

}  // namespace pw::cli
