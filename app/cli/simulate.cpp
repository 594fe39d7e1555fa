#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/schedule.h"
#include "app/cli/options/shared.h"
#include "app/cli/order_watch.h"
#include "app/cli/text/memory.h"
#include "app/cli/text/output.h"
#include "app/cli/text/sensitivity.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/job_subject.h"
#include "engine/planning/prediction.h"
#include "engine/planning/subject.h"
#include "engine/processes/process.h"
#include "schedules/cycles.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/order/limit_sensitivity.h"
#include "simulator/plan/optimizer.h"
#include "simulator/report/bubble_causes.h"
#include "simulator/report/explain_text.h"
#include "simulator/report/json.h"
#include "simulator/runtime/runtime.h"
#include "simulator/step/jitter.h"
#include "simulator/text/json_text.h"
#include "simulator/timeline/chrome.h"
#include "simulator/timeline/text.h"

namespace pw::cli {
namespace {

struct SimulateOptions {
  SubjectOptions subject;
  Sending sends = Sending::Overlapped;
  std::optional<Runtime> runtime;
  bool noOverlap = false;                   ///< of Megatron's messages
  std::optional<PendingReceives> receives;  ///< nothing: a plan's stages have no collectives of their own, of others that is not known
  double jitter = 0, sensitivity = 0;
  int draws = 1000;
  std::uint64_t seed = 1;
  bool json = false, text = false, why = false, whyMemory = false;
  std::string trace;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
};

std::string_view inWords(Sending sending) {
  switch (sending) {
    case Sending::Overlapped: return "";
    case Sending::Posted: return "messages wait until both ends are posted\n";
    case Sending::OneChannel: return "messages wait until both ends are posted, one channel for both directions of a rank pair\n";
    case Sending::Blocking: return "sends and receives block their ranks\n";
  }
  return "";
}

/// The composition of the critical path: `54.0 ms compute, 2.00 ms messages; most on rank 3 (20.0 ms)`.
std::string pathText(const CriticalPath& path) {
  Ns compute = 0, most = 0;
  std::size_t busiest = 0;
  for (std::size_t r = 0; r < path.compute.size(); ++r) {
    const CriticalPath::Share& s = path.compute[r];
    const Ns share = s.forward + s.backward + s.backwardInput + s.backwardWeight + s.slot + s.host;
    compute += share;
    if (share > most) busiest = r;
    most = std::max(most, share);
  }
  std::string text =
      fmt::format("of the critical path: {} compute, {} of it on rank {}", formatDuration(compute), formatDuration(most), busiest);
  if (path.transfer + path.queue + path.latency > 0) {
    text += fmt::format(", messages {} in transfer, {} queued, {} latency", formatDuration(path.transfer), formatDuration(path.queue),
                        formatDuration(path.latency));
  }
  return text;
}

std::string summary(const Subject& subject, Sending sending, const PredictionReport& p) {
  const Metrics& metrics = p.metrics;
  const auto overBound = [](Ns time, Ns bound) {
    const double above = bound > 0 ? static_cast<double>(time - bound) / static_cast<double>(bound) : 0;
    return above > 0 ? fmt::format("{} above the lower bound of {}", percent(above), formatDuration(bound))
                     : std::string("the lower bound: no order is faster");
  };
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"makespan", formatDuration(metrics.makespan), overBound(metrics.makespan, p.lowerBound.flush)});
  if (metrics.step > metrics.makespan || p.uncertainty) {
    const std::string bar =
        p.uncertainty ? fmt::format(" ± {}, by {}", formatDuration(errorBar(*p.uncertainty, metrics.step)), sourceOf(*p.uncertainty)) : "";
    rows.push_back({"step", formatDuration(metrics.step), "with reduction and optimizer" + bar});
  }
  rows.push_back({"window", formatDuration(metrics.window), "the longest single rank, " + overBound(metrics.window, p.lowerBound.window)});
  rows.push_back({"bubble", percent(metrics.bubbleFraction), fmt::format("{} within the window", percent(metrics.bubbleFractionWindow))});
  if (p.utilisation > 0) rows.push_back({"MFU", percent(p.utilisation), "of the ranks' peak FLOP/s, for the model's own FLOPs"});
  if (!p.processBytes.empty())
    rows.push_back({"process", rangeOfSizes(p.processBytes), "that each rank holds beside its tensors, on the CPU"});
  if (p.steadyPeriod > 0) rows.push_back({"period", formatDuration(p.steadyPeriod), "per microbatch in the steady state"});
  rows.push_back({"path", formatDuration(metrics.makespan), pathText(p.explanation.path)});
  if (p.jitter) {
    rows.push_back({"jitter", fmt::format("{} median", formatDuration(quantile(*p.jitter, 0.5))),
                    fmt::format("{} to {} in 90 % of {} draws, each duration varied by {}", formatDuration(quantile(*p.jitter, 0.05)),
                                formatDuration(quantile(*p.jitter, 0.95)), p.jitter->makespans.size(), percent(p.jitter->sigma))});
  }
  if (p.certificate) rows.push_back({subject.schedule.name, "found by " + p.certificate->foundBy, toString(*p.certificate)});
  rows.insert(rows.begin(), std::vector<std::string>{});
  return shapeLine(subject.schedule) + "\n" + (subject.costSource.empty() ? "" : "predicted with " + subject.costSource + "\n") +
         std::string(inWords(sending)) + table(rows);
}

/// The bubble by cause: of each rank, the sums over all ranks last.
std::string byCauseTable(const Explanation& explanation) {
  std::vector<std::vector<std::string>> rows{{"idle of rank"}};
  for (const BubbleCause cause : kPlainCauses) rows.front().emplace_back(nameOf(cause));
  rows.front().emplace_back("work ready");
  IdleByCause sum;
  const auto add = [&](std::string name, const IdleByCause& by) {
    std::vector<std::string> row{std::move(name)};
    for (const BubbleCause cause : kPlainCauses) row.push_back(formatDuration(by.of(cause)));
    row.push_back(formatDuration(by.workReady));
    rows.push_back(std::move(row));
  };
  const std::vector<IdleByCause> ranks = idleByCause(explanation);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    add(fmt::format("{}", r), ranks[r]);
    sum += ranks[r];
  }
  if (ranks.size() > 1) add("all", sum);
  return "\n" + table(rows) + "work ready: idle although an action that the row computes later had all it needs.\n";
}

/// The largest causes of the bubble.
std::string causesText(const Explanation& explanation, bool all) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, explanation.groups.size()) && !all; ++i) {
    const BubbleGroup& g = explanation.groups[i];
    text += fmt::format("rank {} idles {} in {} while {} rank {}{}\n", g.rank.value, formatDuration(g.idle), nameOf(g.phase),
                        g.message ? "a message of" : "it waits for", g.cause.value, g.message ? " is in flight" : " to compute");
  }
  if (!all && explanation.groups.size() > kShown)
    text += fmt::format("… and {} smaller causes; --why shows every bubble\n", explanation.groups.size() - kShown);
  for (std::size_t i = 0; i < explanation.bubbles.size() && all; ++i) text += toString(explanation.bubbles[i]) + "\n";
  if (all && !explanation.bubbles.empty()) text = byCauseTable(explanation) + "\n" + text;
  return text.empty() ? text : "\n" + text;
}

std::string rankTable(const PredictionReport& p) {
  const Metrics& metrics = p.metrics;
  const bool memory = std::any_of(metrics.ranks.begin(), metrics.ranks.end(), [](const RankMetrics& r) { return r.peakBytes > 0; });
  std::vector<std::vector<std::string>> rows{{"rank", "busy", "idle", "warmup", "steady", "cooldown", "bubble", "exposed comm", "live"}};
  if (memory) rows.front().push_back("peak memory");
  for (const RankMetrics& rank : metrics.ranks) {
    const double bubble = metrics.makespan > 0 ? static_cast<double>(rank.idle) / static_cast<double>(metrics.makespan) : 0;
    rows.push_back({fmt::format("{}", rank.rank.value), formatDuration(rank.busy), formatDuration(rank.idle),
                    formatDuration(p.phases[rank.rank.index()].idle[0]), formatDuration(p.phases[rank.rank.index()].idle[1]),
                    formatDuration(p.phases[rank.rank.index()].idle[2]), percent(bubble), formatDuration(rank.exposedComm),
                    fmt::format("{}", rank.peakLiveMicrobatches)});
    if (memory) rows.back().push_back(formatSize(rank.peakBytes));
  }
  return table(rows);
}

RuntimeChoice choiceOf(const SimulateOptions& o, const Schedule& schedule) {
  if (o.sends != Sending::Overlapped) throw UsageError("--runtime says how messages are sent; omit --sends");
  if (o.sensitivity > 0) throw UsageError("--sensitivity is for messages in the background; omit it or --runtime");
  const Shape shape = shapeOf(schedule);
  const bool single = !o.subject.schedule.empty() && shape.stages == shape.ranks && (schedule.name == "1f1b" || schedule.name == "gpipe");
  // What a job's receives stop its ranks for is among the times that its actions wait.
  const bool overlaps = !o.subject.plan.empty() || !o.subject.costsFrom.empty();
  return {.runtime = *o.runtime,
          .receives = o.receives.value_or(overlaps ? PendingReceives::Overlap : PendingReceives::Block),
          .single = single,
          .messages = o.noOverlap ? MegatronMessages::Block : MegatronMessages::Overlap,
          .asGiven = !o.subject.csv.empty()};
}

/// How the runtime sends, and what that costs.
std::string runtimeText(const RuntimePrediction& of) {
  constexpr std::size_t kShown = 6;
  std::string text = of.how + "\n";
  Ns sum = 0;
  for (const BlockedBy& blocked : of.blocked) sum += blocked.end - blocked.start;
  if (of.blocked.empty()) return text;
  text += fmt::format("pending receives stop ranks for {} in all{}\n", formatDuration(sum),
                      of.overlapped ? fmt::format("; where they stop nothing the makespan is {}", formatDuration(*of.overlapped)) : "");
  for (std::size_t i = 0; i < std::min(kShown, of.blocked.size()); ++i) {
    const BlockedBy& blocked = of.blocked[i];
    text += fmt::format("rank {}: {} waits {} for {}, which it does not need, at {}\n", blocked.rank.value, toString(blocked.before),
                        formatDuration(blocked.end - blocked.start), toString(blocked.receive), formatDuration(blocked.start));
  }
  if (of.blocked.size() > kShown) text += fmt::format("… and {} more; --json lists all\n", of.blocked.size() - kShown);
  return text + "`pipewright lower --minimise-waits` places receives where their messages are due\n";
}

std::string withRuntime(const std::string& prediction, const SimulateOptions& o, const RuntimePrediction& of) {
  auto json = ownJson(prediction);
  json["runtime"] = nameOf(*o.runtime);
  json["blocked_receives"] = nlohmann::ordered_json::array();
  for (const BlockedBy& blocked : of.blocked) {
    json["blocked_receives"].push_back({{"rank", blocked.rank.value},
                                        {"receive", toString(blocked.receive)},
                                        {"before", toString(blocked.before)},
                                        {"start_ns", blocked.start},
                                        {"end_ns", blocked.end}});
  }
  if (of.overlapped) json["makespan_overlapped_ns"] = *of.overlapped;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int refuse(const SimulateOptions& options, const Schedule& schedule, const std::vector<Problem>& problems) {
  if (options.json) {
    print(versioned(problemsJson(schedule, problems)) + "\n");
  } else {
    print(fmt::format("{}\n{}; it cannot run\n\n{}", shapeLine(schedule), counted(static_cast<std::int64_t>(problems.size()), "problem"),
                      problemsText(problems)));
  }
  return kNo;
}

int runSimulate(const SimulateOptions& options) {
  if (options.noOverlap && options.runtime != Runtime::Megatron)
    throw UsageError("--no-overlap-p2p-communication is an argument of Megatron; add --runtime megatron, or omit it");
  if (options.json && options.text) throw UsageError("--json prints one document, and --text a drawing; omit one of them");
  if (options.receives && options.runtime != Runtime::Torch)
    throw UsageError("--receives says what posted receives of torch's runtime do; add --runtime torch, or omit it");
  OrderWatch watch(options.progressStyle);
  SubjectOptions subjectOptions = options.subject;
  subjectOptions.shouldContinue = watch.shouldContinue();
  std::optional<Job> job;  // whose held-out steps are predicted as the runtime posts their messages
  if (options.runtime && !options.subject.costsFrom.empty()) {
    subjectOptions.job = std::make_shared<const Job>(*loadJob({.paths = {options.subject.costsFrom}}));
    job = withSteps(*subjectOptions.job, options.subject.costsFromSteps);
  }
  Subject subject = subjectOf(subjectOptions);
  watch.end();
  const Sending sending = options.runtime ? Sending::Posted : options.sends;  // for memory: receives have buffers once posted
  JitterOptions jitter{options.jitter, options.draws, options.seed};
  std::optional<Interrupts> interrupts;  // Ctrl-C ends the draws with those there are
  bool drawsEnded = false;
  if (options.jitter > 0) {
    interrupts.emplace();
    jitter.tell = [&, show = progress("draw", options.progressStyle)](int done) {
      show(done, options.draws, "");
      drawsEnded = interrupts->take() != 0;
      return !drawsEnded;
    };
  }
  RuntimePrediction runtime;
  if (options.runtime) {
    const RuntimeChoice choice = choiceOf(options, subject.schedule);
    if (job && options.subject.slow.empty()) subject.uncertainty = uncertaintyOf(*job, subject.schedule, choice);
    runtime = predictRuntime(subject, choice, options.why, jitter);
  } else {
    runtime.of = predictSubject(subject, sending, options.why, jitter);
  }
  drawsEnded = drawsEnded || (interrupts && interrupts->take() != 0);  // also one that came after the last draw
  interrupts.reset();
  const SubjectPrediction& predicted = runtime.of;
  if (!predicted.problems.empty()) return refuse(options, subject.schedule, predicted.problems);
  const PredictionReport& report = predicted.report;
  if (!options.trace.empty()) writeFile(options.trace, toChromeJson({&predicted.trace}, {"predicted"}));
  SensitivityReport sensitivity;
  if (options.sensitivity > 0) {
    sensitivity = sensitivityOf(predicted.rows, subject.costs, sending, options.sensitivity);
    if (subject.sought && sending == Sending::Overlapped) {
      OrderWatch limitWatch(options.progressStyle);
      const OrderEffort effort{.seconds = options.subject.seconds.value_or(OrderEffort().seconds),
                               .threads = kOrderThreads,
                               .shouldContinue = limitWatch.shouldContinue()};
      sensitivity.limits = limitSensitivity(*subject.sought, subject.certificate->time, options.sensitivity, effort);
      limitWatch.end();
    }
  }
  if (options.json) {
    std::string document = predictionJson(report, predicted.rows, subject.costs);
    if (options.runtime) document = withRuntime(document, options, runtime);
    if (options.whyMemory) document = withMemory(document, memoryOf(predicted.rows, subject.costs, sending));
    if (options.sensitivity > 0) document = withSensitivity(document, sensitivity);
    print(versioned(document) + "\n");
  } else {
    const std::string how = options.runtime ? "\n" + runtimeText(runtime) : "";
    print(summary(subject, options.sends, report) + how + "\n" + rankTable(report) + causesText(report.explanation, options.why));
    for (const std::string& note : subject.notes) print("note: " + note + "\n");
    if (options.whyMemory) print("\n" + memoryText(memoryOf(predicted.rows, subject.costs, sending), subject.limitsInBytes));
    if (options.sensitivity > 0) print("\n" + sensitivityText(sensitivity));
    if (options.text || isTerminal(1)) {
      printDrawing("\n" + toText(predicted.trace, {terminalColumns(), wantsColour(), 0}));
      if (subject.schedule.lockstep) print("\n" + cycleTable(subject.schedule, terminalColumns()));
    }
  }
  if (drawsEnded)
    return complain(fmt::format("Interrupted: {} of {} draws were made", report.jitter->makespans.size(), options.draws), kNo);
  if (!predicted.excess) return watch.status(kYes);
  return complain(fmt::format("{}: {}", subject.schedule.name, *predicted.excess), kNo);
}

void declareLayers(CLI::App& command, SubjectOptions& o) {
  command.add_option("--layers", o.layers, "A table of layers with their costs (JSON or CSV) instead of these times")
      ->type_name("F.json|F.csv");
  command.add_option("--split", o.splits, "With --layers: the layers that begin stages (default: balanced by time)")
      ->delimiter(',')
      ->option_text("NAME,...");
  command.add_option("--cluster", o.cluster, "With --layers: messages take as long as on this preset or file (default: no time)")
      ->option_text("CLUSTER");
  command
      .add_option_function<std::string>(
          "--optimizer", [&o](const std::string& name) { o.optimizer = parseOptimizer(name); },
          "With --layers: optimizer whose state is counted (default: none)")
      ->option_text(optimizerNames("|"));
}

/// Declares the options that say what is simulated; `o` must outlive the command.
void declareSubject(CLI::App& command, SubjectOptions& o) {
  command.add_option("PLAN.json", o.plan, "Plan (JSON) with its own schedule and costs")->option_text(" ");
  command.add_option("--schedule", o.schedule, "A schedule by name, with --ranks and --microbatches; auto: an order made for these costs")
      ->type_name("NAME");
  declareShape(command, o.shape);
  command.add_option("--csv", o.csv, "A schedule in torch's CSV")->type_name("F.csv");
  declareLetters(command, o.letters);
  const std::string perStage = "; one value, or one per stage: 1ms,2ms";
  command.add_option("--forward", o.forward, "Time of a forward" + perStage)->type_name("T")->check(durationList());
  command.add_option("--backward", o.backward, "Time of a backward (default: twice the forward)")->type_name("T")->check(durationList());
  command.add_option("--input", o.input, "Time of the backward's part for the inputs, if the schedule splits it")
      ->type_name("T")
      ->check(durationList());
  command.add_option("--weight", o.weight, "Time of the backward's part for the weights")->type_name("T")->check(durationList());
  command.add_option("--overlap", o.overlap, "Time of a forward and a backward overlapped in one slot (default: their sum)")
      ->type_name("T")
      ->check(durationList());
  command.add_option("--latency", o.latency, "Latency: from the end of an action to the arrival of its message, not counting the transfer")
      ->type_name("T")
      ->check(aDuration());
  command.add_option("--transfer", o.transfer, "Transfer time: how long a message occupies its channel")
      ->type_name("T")
      ->check(aDuration());
  command.add_option("--load", o.load, "For lockstep: loading a microbatch from the host")->type_name("T")->check(aDuration());
  command.add_option("--store", o.store, "For lockstep: storing a result to the host")->type_name("T")->check(aDuration());
  command.add_option("--costs", o.costs, "A problem file with shape, costs and limits instead of these times")->type_name("F.json");
  command
      .add_option("--costs-from", o.costsFrom,
                  "The usual times of a job (pipewright import) or trace instead of these; without --schedule its own schedule")
      ->type_name("JOB.json|TRACE");
  command.add_option("--steps", o.costsFromSteps, "With --costs-from: only these steps of it (default: all)")->option_text("A-B");
  declareSeconds(command, o.seconds);
  declareLayers(command, o);
  command
      .add_option("--live-limit", o.liveLimit,
                  "Largest allowed number of live (stage, microbatch) pairs, for all ranks or per rank; exit status 1 if exceeded")
      ->delimiter(',')
      ->option_text("N[,N...]")
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->allow_extra_args(false);
  command
      .add_option("--memory-limit", o.memoryLimit, "Memory limit of a rank, for example 24GiB; exit status 1 if the schedule needs more")
      ->check(aSize())
      ->option_text("SIZE");
  command.add_option("--slow", o.slow, "Slow down a rank, 2=1.5, or a link, 1-2=3 (may be repeated)")
      ->type_name("RANK=FACTOR")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
}

}  // namespace

Command addSimulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Predict a plan or schedule: makespan, bubble, memory, timeline");
  declareSubject(*command, options->subject);
  addChoice(*command, "--sends", options->sends,
            "How messages are sent: in the background (default); when both ends are posted, with separate channels for the directions or "
            "one for both; or blocking both ranks");
  addChoice(*command, "--runtime", options->runtime,
            "Post sends and receives as this runtime does, in its order and on its communicators, and wait where it waits");
  addChoice(*command, "--receives", options->receives,
            "With --runtime torch: what a receive does that is posted before its message is sent: block its rank, as where stages have "
            "collectives of their own (default), or overlap what does not need it (default for a plan, whose stages have none, and with "
            "--costs-from, whose times include what ranks waited)");
  command->add_flag("--no-overlap-p2p-communication", options->noOverlap,
                    "With --runtime megatron: as with this argument of Megatron, which then computes nothing while messages of interleaved "
                    "stages are in flight");
  CLI::Option* jitter =
      command->add_option("--jitter", options->jitter, "Vary every duration at random by about this fraction, for example 0.05")
          ->check(numberFrom(0, kMostJitter))
          ->option_text("SIGMA");
  command->add_option("--draws", options->draws, "Number of draws for --jitter (default: 1000)")
      ->check(wholeFrom(1, kMostDraws))
      ->option_text("N")
      ->needs(jitter);
  command->add_option("--seed", options->seed, "Seed of the random numbers for --jitter")->check(aSeed())->option_text("S")->needs(jitter);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->add_flag("--text", options->text, "Draw the timeline also if stdout is not a terminal");
  command->add_flag("--why", options->why, "Explain what every bubble waits for; with --json also the whole critical path");
  addSensitivity(*command, options->sensitivity);
  command->add_flag("--why-memory", options->whyMemory, "Explain each rank's peak: bytes by kind, stage and microbatch");
  command->add_option("--trace", options->trace, "Write a trace for Perfetto or chrome://tracing")->type_name("F.json");
  addProgress(*command, options->progressStyle);
  command->footer(
      "Examples:\n"
      "  pipewright simulate plan.json\n"
      "  pipewright simulate --schedule 1f1b --ranks 4 --microbatches 8 --forward 1ms --backward 2ms\n"
      "  pipewright simulate --schedule zbv --ranks 4 --microbatches 8 --forward 1ms --input 1ms --weight 1ms --text\n"
      "  pipewright simulate --schedule 1f1b --ranks 4 --microbatches 8 --slow 1=1.5 --slow 2-3=4 --latency 50us --jitter 0.05\n"
      "  pipewright simulate --schedule auto --ranks 4 --microbatches 8 --forward 1ms,2ms,1ms,1ms --live-limit 3\n"
      "  pipewright simulate --layers layers.csv --schedule 1f1b --ranks 4 --microbatches 8\n"
      "  pipewright simulate --costs-from job.json --schedule zbv --slow 2=1.5\n"
      "  pipewright simulate --csv mine.csv --latency 20us --transfer 100us --sends one-channel --json\n"
      "  pipewright simulate --csv mine.csv --forward 1ms --backward 2ms --runtime torch\n\n"
      "Exit status 1 when the schedule cannot run or exceeds a limit.");
  return [options] { return runSimulate(*options); };
}

}  // namespace pw::cli
