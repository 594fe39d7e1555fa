#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include "app/cli/commands.h"
#include "app/cli/output.h"
#include "app/cli/schedule_options.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/json_fields.h"
#include "simulator/metrics.h"
#include "simulator/plan.h"
#include "simulator/simulate.h"

namespace pw::cli {
namespace {

constexpr Ns kDefaultForward = 1'000'000;   ///< costs nobody gave: a round unit, and the usual backward of twice the forward
constexpr int kDefaultBackwardRatio = 2;

struct SimulateOptions {
  std::string plan, schedule, csv;
  ShapeOptions shape;
  std::string forward, backward, input, weight, latency, transfer;
  std::vector<std::string> slow;
  bool json = false, text = false;
  std::string trace;
};

/// What is simulated: a plan's own schedule and costs, or a schedule with costs from the call.
struct Subject {
  Schedule schedule;
  CostTable costs;
  std::string costSource;
};

std::vector<Ns> durations(const std::string& text) {
  std::vector<Ns> list;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    list.push_back(parseDuration(std::string_view(text).substr(at, comma - at)));
    at = comma + 1;
  }
  return list;
}

/// `1.00 ms`, or `1.00 ms to 4.00 ms` where stages differ.
std::string spread(const CostTable& costs, Ns StageCost::*part) {
  Ns least = costs.stages.front().*part, most = least;
  for (const StageCost& stage : costs.stages) {
    least = std::min(least, stage.*part);
    most = std::max(most, stage.*part);
  }
  return least == most ? formatDuration(least) : formatDuration(least) + " to " + formatDuration(most);
}

Subject fromCall(const SimulateOptions& options) {
  Subject subject;
  subject.schedule = options.csv.empty() ? generateFrom(options.schedule, options.shape) : readSchedule(options.csv);
  SyntheticCosts costs{durations(options.forward), durations(options.backward), durations(options.input), durations(options.weight),
                       options.latency.empty() ? 0 : parseDuration(options.latency), options.transfer.empty() ? 0 : parseDuration(options.transfer)};
  const bool given = !costs.forward.empty() || !costs.backward.empty() || !costs.backwardInput.empty() || !costs.backwardWeight.empty();
  if (!given) costs.forward = {kDefaultForward};
  if (costs.backward.empty() && costs.backwardInput.empty() && costs.backwardWeight.empty()) {
    for (const Ns forward : costs.forward) costs.backward.push_back(kDefaultBackwardRatio * forward);
  }
  subject.costs = syntheticTable(costs, static_cast<int>(subject.schedule.rankOfStage.size()));
  subject.costSource = fmt::format("forward {}, backward {} per stage and microbatch{}", spread(subject.costs, &StageCost::forward),
                                   spread(subject.costs, &StageCost::backward), given ? "" : "; change them with --forward and --backward");
  return subject;
}

Subject subjectOf(const SimulateOptions& options) {
  const int sources = static_cast<int>(!options.plan.empty()) + static_cast<int>(!options.schedule.empty()) + static_cast<int>(!options.csv.empty());
  if (sources != 1) throw UsageError("simulate takes one of a plan file, --schedule NAME and --csv F.csv; see pipewright simulate --help");
  const bool shaped = options.shape.ranks > 0 || options.shape.microbatches > 0 || options.shape.chunks > 1;
  if (options.schedule.empty() && shaped) {
    throw UsageError("a plan or CSV has its own ranks, chunks and microbatches; leave out those options, or give --schedule NAME");
  }
  if (options.plan.empty()) return fromCall(options);
  for (const std::string* cost : {&options.forward, &options.backward, &options.input, &options.weight, &options.latency, &options.transfer}) {
    if (!cost->empty()) throw UsageError("a plan has its own costs; leave out --forward, --backward, --input, --weight, --latency and --transfer");
  }
  Plan plan = parsePlan(readFile(options.plan), options.plan);
  return {std::move(plan.schedule), std::move(plan.costs), plan.profile.nodes.empty() ? "" : "costs " + sourceOf(plan.profile)};
}

Ns scaled(Ns time, double factor) { return static_cast<Ns>(std::llround(static_cast<double>(time) * factor)); }

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> numberIn(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// `2=1.5`: every duration of the stages on rank 2 takes 1.5 times as long.
void slowDown(Subject& subject, const std::string& text) {
  constexpr double kMost = 1e6;
  const std::size_t equals = std::min(text.find('='), text.size());
  const auto rank = numberIn<int>(std::string_view(text).substr(0, equals));
  const auto factor = numberIn<double>(std::string_view(text).substr(std::min(equals + 1, text.size())));
  if (!rank || !factor || !(*factor > 0) || *factor > kMost) {
    throw UsageError(fmt::format("--slow \"{}\" is no rank and factor; write for example --slow 2=1.5", text));
  }
  if (*rank < 0 || *rank >= shapeOf(subject.schedule).ranks) {
    throw UsageError(fmt::format("--slow {} names rank {}, but ranks go from 0 to {}", text, *rank, shapeOf(subject.schedule).ranks - 1));
  }
  subject.costSource += fmt::format("; rank {} takes {:g} times as long", *rank, *factor);
  for (std::size_t s = 0; s < subject.costs.stages.size(); ++s) {
    if (subject.schedule.rankOfStage[s].value != *rank) continue;
    StageCost& stage = subject.costs.stages[s];
    for (Ns* time : {&stage.forward, &stage.backward, &stage.backwardInput, &stage.backwardWeight, &stage.optimizer}) *time = scaled(*time, *factor);
  }
}

std::string summary(const Subject& subject, const Metrics& metrics, Ns bound) {
  const double above = bound > 0 ? static_cast<double>(metrics.makespan - bound) / static_cast<double>(bound) : 0;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"makespan", formatDuration(metrics.makespan),
                  above > 0 ? fmt::format("{} above the lower bound of {}", percent(above), formatDuration(bound)) : "the lower bound: no order is faster"});
  if (metrics.step > metrics.makespan) rows.push_back({"step", formatDuration(metrics.step), "with reduction and optimizer"});
  rows.push_back({"window", formatDuration(metrics.window), "the longest single rank"});
  rows.push_back({"bubble", percent(metrics.bubbleFraction), fmt::format("{} within the window", percent(metrics.bubbleFractionWindow))});
  rows.insert(rows.begin(), std::vector<std::string>{});
  return shapeLine(subject.schedule) + "\n" + (subject.costSource.empty() ? "" : subject.costSource + "\n") + table(rows);
}

std::string rankTable(const Metrics& metrics) {
  const bool memory = std::any_of(metrics.ranks.begin(), metrics.ranks.end(), [](const RankMetrics& r) { return r.peakBytes > 0; });
  std::vector<std::vector<std::string>> rows{{"rank", "busy", "idle", "bubble", "exposed comm", "live"}};
  if (memory) rows.front().push_back("peak memory");
  for (const RankMetrics& rank : metrics.ranks) {
    const double bubble = metrics.makespan > 0 ? static_cast<double>(rank.idle) / static_cast<double>(metrics.makespan) : 0;
    rows.push_back({fmt::format("{}", rank.rank.value), formatDuration(rank.busy), formatDuration(rank.idle), percent(bubble),
                    formatDuration(rank.exposedComm), fmt::format("{}", rank.peakLiveMicrobatches)});
    if (memory) rows.back().push_back(formatSize(rank.peakBytes));
  }
  return table(rows);
}

int refuse(const SimulateOptions& options, const Schedule& schedule, const std::vector<Problem>& problems) {
  if (options.json) {
    print(problemsJson(schedule, problems) + "\n");
  } else {
    print(fmt::format("{}\n{}; it cannot run\n\n{}", shapeLine(schedule), counted(static_cast<std::int64_t>(problems.size()), "problem"),
                      problemsText(problems)));
  }
  return kNo;
}

int runSimulate(const SimulateOptions& options) {
  Subject subject = subjectOf(options);
  for (const std::string& slow : options.slow) slowDown(subject, slow);
  const std::vector<Problem> problems = check(subject.schedule);
  if (stops(problems)) return refuse(options, subject.schedule, problems);
  const Trace trace = simulate(subject.schedule, subject.costs);
  const Metrics metrics = measure(trace);
  const Ns bound = lowerBound(subject.schedule, subject.costs);
  if (!options.trace.empty()) writeFile(options.trace, toChromeJson({&trace}, {"predicted"}));
  if (options.json) {
    print(metricsJson(metrics, subject.schedule, subject.costs, bound) + "\n");
    return kYes;
  }
  std::string text = summary(subject, metrics, bound);
  if (!problems.empty()) text += "Sends are buffered here; with blocking sends this schedule would deadlock.\n";
  text += "\n" + rankTable(metrics);
  if (options.text || isTerminal(1)) text += "\n" + toText(trace, {terminalColumns(), wantsColour(), 0});
  print(text);
  return kYes;
}

}  // namespace

Command addSimulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Predict a plan or schedule: makespan, bubble, memory, timeline");
  command->add_option("PLAN.json", options->plan, "Plan with its own schedule and costs")->option_text(" ");
  command->add_option("--schedule", options->schedule, "A schedule by name, with --ranks and --microbatches")->type_name("NAME");
  declareShape(*command, options->shape);
  command->add_option("--csv", options->csv, "A schedule in torch's CSV")->type_name("F.csv");
  const std::string perStage = "; one value, or one per stage: 1ms,2ms";
  command->add_option("--forward", options->forward, "Time of a forward" + perStage)->type_name("T");
  command->add_option("--backward", options->backward, "Time of a backward; twice the forward without it")->type_name("T");
  command->add_option("--input", options->input, "Its part for the inputs, where a schedule splits the backward")->type_name("T");
  command->add_option("--weight", options->weight, "Its part for the weights")->type_name("T");
  command->add_option("--latency", options->latency, "From the end of an action to its message's arrival, beside the transfer")->type_name("T");
  command->add_option("--transfer", options->transfer, "How long a message holds its channel")->type_name("T");
  command->add_option("--slow", options->slow, "Slow one rank down: 2=1.5 (may be repeated)")->type_name("RANK=FACTOR")->expected(1)->take_all();
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->add_flag("--text", options->text, "Draw the timeline, as is done on a terminal anyway");
  command->add_option("--trace", options->trace, "Write a trace for Perfetto or chrome://tracing")->type_name("F.json");
  command->footer(
      "Examples:\n"
      "  pipewright simulate plan.json\n"
      "  pipewright simulate --schedule 1f1b --ranks 4 --microbatches 8 --forward 1ms --backward 2ms\n"
      "  pipewright simulate --schedule gpipe --ranks 2 --microbatches 4 --forward 1ms,3ms --slow 1=1.5 --text\n"
      "  pipewright simulate --csv mine.csv --latency 20us --transfer 100us --json\n\n"
      "Exit status 1 when the schedule cannot run.");
  return [options] { return runSimulate(*options); };
}

}  // namespace pw::cli
