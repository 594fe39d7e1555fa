#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/model.h"
#include "app/cli/output.h"
#include "backends/run_store.h"
#include "backends/torch_backend.h"
#include "engine/failure.h"
#include "engine/launcher.h"
#include "engine/worker.h"
#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/metrics.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string plan, store, backend = "gloo", data = "synthetic", loss, optimizer = "sgd", progressStyle = "auto";
  int steps = 1, threads = 1;
  double learningRate = 0.01;
  std::uint64_t seed = 0;
  double timeoutSeconds = 120;
  bool verify = false, json = false, initRandom = false;
};

/// What rank 0 knows when all is done.
struct Result {
  RunRecord record;
  Verification verification;
  std::optional<RunId> id;
};

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// A run without steps.
RunRecord recordOf(const Plan& plan, const Options& o, const std::string& startedAt) {
  RunRecord record;
  record.startedAt = startedAt;
  record.backend = o.backend;
  record.seed = o.seed;
  record.machine = thisMachine();
  record.plan = plan;
  record.predicted = simulate(plan.schedule, plan.costs);
  return record;
}

/// Joins the ranks' logs step by step.
Result assemble(const Plan& plan, const Options& o, const std::vector<RankLog>& ranks, const std::string& startedAt) {
  Result result;
  result.record = recordOf(plan, o, startedAt);
  for (std::size_t s = 0; s < ranks.front().steps.size(); ++s) {
    std::vector<StepLog> logs;
    StepRecord step;
    step.step = static_cast<int>(s);
    for (const RankLog& rank : ranks) {
      logs.push_back(rank.steps.at(s));
      if (logs.back().loss) step.loss = *logs.back().loss;
    }
    step.measured = joinTraces(logs);
    result.record.steps.push_back(std::move(step));
  }
  for (const RankLog& rank : ranks) {
    const Verification& v = rank.verification;
    result.verification.lossDifference = std::max(result.verification.lossDifference, v.lossDifference);
    result.verification.gradientDifference = std::max(result.verification.gradientDifference, v.gradientDifference);
    if (v.equal || !result.verification.equal) continue;
    result.verification.equal = false;
    result.verification.firstDifference = v.firstDifference;
  }
  if (!result.verification.equal) result.record.failure = "The first step is not that of one rank: " + result.verification.firstDifference;
  return result;
}

void printJson(const Result& result, bool verified) {
  const Metrics predicted = measure(result.record.predicted);
  Json j{{"run_id", result.id ? Json(result.id->value) : Json(nullptr)}, {"predicted_makespan_ns", predicted.makespan}, {"predicted_step_ns", predicted.step},
         {"predicted_bubble_fraction", predicted.bubbleFraction}, {"losses", Json::array()}, {"steps", Json::array()}};
  for (const StepRecord& step : result.record.steps) {
    const Metrics m = measure(step.measured);
    j["losses"].push_back(step.loss);
    Json ranks = Json::array();
    for (const RankMetrics& r : m.ranks) {
      ranks.push_back({{"rank", r.rank.value}, {"busy_ns", r.busy}, {"idle_ns", r.idle}, {"exposed_comm_ns", r.exposedComm}, {"peak_bytes", r.peakBytes},
                       {"peak_live_microbatches", r.peakLiveMicrobatches}});
    }
    j["steps"].push_back({{"step", step.step}, {"makespan_ns", m.makespan}, {"step_ns", m.step}, {"measured_bubble_fraction", m.bubbleFraction}, {"ranks", ranks},
                          {"samples_per_second", m.step > 0 ? static_cast<double>(result.record.plan.batch) * 1e9 / static_cast<double>(m.step) : 0.0}});
  }
  if (verified) {
    const Verification& v = result.verification;
    j["verification"] = {{"equal", v.equal}, {"loss_difference", v.lossDifference}, {"gradient_difference", v.gradientDifference}, {"first_difference", v.firstDifference}};
  }
  fmt::print("{}\n", j.dump(1));
}

void printText(const Result& result, const Options& o) {
  const auto& steps = result.record.steps;
  const Metrics predicted = measure(result.record.predicted);
  const Metrics measured = measure(medianStep(result.record).measured);
  fmt::print("{}, loss {:.6f} before the first update", counted(static_cast<int>(steps.size()), "step"), steps.front().loss);
  fmt::print("{}\n\n", steps.size() > 1 ? fmt::format(", {:.6f} before the last", steps.back().loss) : "");
  std::vector<std::vector<std::string>> rows{{"", "predicted", "measured", "error"}};
  const auto time = [&](const std::string& what, Ns expected, Ns actual) {
    rows.push_back({what, formatDuration(expected), formatDuration(actual),
                    expected == 0 ? "–" : signedPercent(static_cast<double>(actual - expected) / static_cast<double>(expected))});
  };
  time("step", predicted.step, measured.step);
  time("makespan", predicted.makespan, measured.makespan);
  rows.push_back({"bubble", percent(predicted.bubbleFraction), percent(measured.bubbleFraction), ""});
  for (std::size_t r = 0; r < predicted.ranks.size(); ++r) time(fmt::format("busy, rank {}", r), predicted.ranks[r].busy, measured.ranks[r].busy);
  for (std::size_t r = 0; r < predicted.ranks.size(); ++r) {
    rows.push_back({fmt::format("memory, rank {}", r), formatSize(predicted.ranks[r].peakBytes), formatSize(measured.ranks[r].peakBytes),
                    signedPercent(static_cast<double>(measured.ranks[r].peakBytes) / static_cast<double>(std::max<Bytes>(1, predicted.ranks[r].peakBytes)) - 1)});
  }
  fmt::print("{}", table(rows));
  fmt::print("\n{:.1f} samples/s, {}\n", static_cast<double>(result.record.plan.batch) * 1e9 / static_cast<double>(std::max<Ns>(measured.step, 1)),
             steps.size() > 1 ? "in the median step after the first, which warms up" : "in a single step, which includes the warm-up: take more with --steps");
  if (o.verify) {
    const Verification& v = result.verification;
    const bool exact = v.equal && v.lossDifference == 0 && v.gradientDifference == 0;
    fmt::print("verified against one rank on the same microbatches: {}\n",
               exact     ? "loss and all gradients equal, bit for bit"
               : v.equal ? fmt::format("equal within float32 rounding (loss differs by {:.2g}, gradients by at most {:.2g})", v.lossDifference, v.gradientDifference)
                         : "NOT EQUAL. " + v.firstDifference);
  }
  if (result.id) fmt::print("stored as run {} in {}\n", result.id->value, o.store);
}

/// Trains this rank's part; fills `communicator`, which must outlive a failure: peers that notice must not report before this rank does.
void trainRank(const Options& o, const Plan& plan, const RankEnvironment& environment, std::unique_ptr<Communicator>& communicator) {
  const ModelGraph graph = loadModel(plan.modelFiles);
  requireFits(plan, graph);
  bindToCores(environment);
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(o.threads);
  TrainOptions options;
  options.steps = o.steps;
  options.verify = o.verify;
  options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(o.timeoutSeconds * 1000));
  options.stage = {o.seed, o.learningRate, o.initRandom, o.data == "synthetic" ? "" : o.data};
  if (environment.worldSize == 1) {
    communicator = std::move(inMemoryCommunicators(1, options.deadline).front());
  } else {
    communicator = torch.connectGloo(rendezvousOf(environment, options.deadline));
  }
  const auto show = progress("train " + plan.modelName, parseProgressStyle(o.progressStyle));
  options.onLoss = [&](int step, double loss) { show(step + 1, o.steps, fmt::format("loss {:.4f}", loss)); };
  const std::string startedAt = now();
  const std::vector<RankLog> logs = gather(train(graph, plan, options, *communicator, torch), *communicator);
  if (logs.empty()) return;
  Result result = assemble(plan, o, logs, startedAt);
  if (!o.store.empty()) result.id = RunStore(o.store, RunStore::Mode::ReadWrite).add(result.record);
  o.json ? printJson(result, o.verify) : printText(result, o);
  if (!result.record.failure.empty()) throw Error(result.record.failure);
}

void refuseWhatCannotRun(const Options& o, const Plan& plan) {
  if (o.backend != "gloo") throw UsageError(fmt::format("This build cannot run over {}; use --backend gloo.", o.backend));
  if (o.optimizer != "sgd") throw UsageError(fmt::format("This build has no optimizer {}; use --optimizer sgd.", o.optimizer));
  for (const Problem& problem : check(plan.schedule)) {
    if (problem.stops == Stops::Always) throw UsageError(fmt::format("The schedule of {} cannot be run: rank {}: {}", o.plan, problem.rank.value, problem.message));
  }
  if (plan.schedule.placement.stages() > plan.schedule.rows.size() || plan.schedule.placement.bidirectional()) {
    throw UsageError(fmt::format("The schedule of {} puts several stages on a rank, which this version cannot run; use gpipe or 1f1b.", o.plan));
  }
  bool trains = false;
  for (const auto& row : plan.schedule.rows) {
    for (const Action& action : row) {
      trains = trains || action.kind == ActionKind::Backward;
      if (action.kind == ActionKind::BackwardInput || action.kind == ActionKind::BackwardWeight) {
        throw UsageError(fmt::format("The schedule of {} splits its backward, which this version cannot run; use gpipe or 1f1b.", o.plan));
      }
    }
  }
  if (!trains) throw UsageError(fmt::format("The schedule of {} has no backward, so there is nothing to train; use gpipe or 1f1b.", o.plan));
}

/// Starts the ranks. Of a run that fails, this process keeps a record, as none of its ranks may be able to.
void launchRanks(const Options& o, const Plan& plan) {
  const std::string startedAt = now();
  const std::size_t known = o.store.empty() ? 0 : RunStore(o.store, RunStore::Mode::ReadOnly).list().size();
  const LaunchResult result = launch(static_cast<int>(plan.schedule.rows.size()), ownCall(), o.threads, {}, std::chrono::milliseconds(0));
  if (result.ok || o.store.empty()) return throwUnlessOk(result);
  RunRecord record = recordOf(plan, o, startedAt);
  record.failure = result.interrupted ? "Interrupted" : result.failure;
  try {
    RunStore store(o.store, RunStore::Mode::ReadWrite);
    const std::vector<RunSummary> runs = store.list();
    const auto isThisRun = [&](const RunSummary& r) { return !r.failure.empty() && record.failure.ends_with(r.failure); };  // behind "Rank 0: "
    const bool stored = runs.size() > known && std::any_of(runs.begin() + static_cast<std::ptrdiff_t>(known), runs.end(), isThisRun);
    if (!stored) store.add(record);
  } catch (const Error&) {
    // What ended the run matters more than that its record is lost, so that is what the user reads.
  }
  throwUnlessOk(result);
}

int run(Options& o) {
  Plan plan = parsePlan(readFile(o.plan), o.plan);
  if (!o.loss.empty()) plan.loss = o.loss;
  refuseWhatCannotRun(o, plan);
  const int ranks = static_cast<int>(plan.schedule.rows.size());
  const auto environment = rankEnvironment();
  const bool isFirst = !environment || (environment->rank == Rank(0) && environment->statusFd < 0);
  if (isFirst && !o.store.empty()) static_cast<void>(RunStore(o.store, RunStore::Mode::ReadWrite));  // refuse an unusable store before training
  if (environment) {
    if (environment->worldSize != ranks) {
      throw UsageError(fmt::format("{} is for {} ranks and WORLD_SIZE is {}; start as many processes as the plan has ranks.", o.plan, ranks, environment->worldSize));
    }
    std::unique_ptr<Communicator> communicator;
    try {
      trainRank(o, plan, *environment, communicator);
      return kYes;
    } catch (const std::exception& e) {
      failRank(*environment, e);
    }
  }
  requireFits(plan, loadModel(plan.modelFiles));
  launchRanks(o, plan);
  return kYes;
}

}  // namespace

Command addRun(CLI::App& app) {
  auto* sub = app.add_subcommand("run", "Execute a plan: one process per rank, training steps, measured timeline");
  auto o = std::make_shared<Options>();
  sub->add_option("PLAN.json", o->plan, "Plan (JSON) of `pipewright plan`")->required()->option_text("PLAN.json");
  sub->add_option("--steps", o->steps, "Training steps (default 1)")->check(CLI::Range(1, 1 << 24))->option_text("N");
  sub->add_option("--store", o->store, "Record the run in this SQLite file, also one that fails")->option_text("FILE");
  sub->add_option("--backend", o->backend, "gloo")->option_text("gloo");
  sub->add_option("--data", o->data, "synthetic, or a torch.save of a dict of tensors")->option_text("FILE|synthetic");
  sub->add_option("--loss", o->loss, "cross_entropy, mse, sum, output:NAME (default: the plan's)")->option_text("LOSS");
  sub->add_option("--optimizer", o->optimizer, "sgd")->option_text("sgd");
  sub->add_option("--lr", o->learningRate, "Learning rate (default 0.01)")->option_text("X");
  sub->add_option("--seed", o->seed, "Seed of data, dropout and drawn weights (default 0)")->option_text("S");
  sub->add_option("--threads", o->threads, "Intra-op threads of each rank (default 1)")->check(CLI::Range(1, 1024))->option_text("N");
  sub->add_option("--timeout", o->timeoutSeconds, "Seconds any wait between ranks may last (default 120)")->check(CLI::Range(0.1, 1e6))->option_text("SECONDS");
  sub->add_option("--init", "Draw weights instead of reading them")->check(CLI::IsMember({"random"}))->each([o](const std::string&) { o->initRandom = true; })->option_text("random");
  sub->add_option("--progress", o->progressStyle, "auto or json")->option_text("STYLE");
  sub->add_flag("--verify", o->verify, "Compare loss and gradients of the first step with one rank on the same microbatches");
  sub->add_flag("--json", o->json, "Print the result as JSON");
  sub->footer("\nExamples:\n"
              "  pipewright run plan.json --steps 20 --store runs.db\n"
              "  pipewright run plan.json --verify\n"
              "  torchrun --nproc-per-node 2 --no-python pipewright run plan.json");
  return [o] { return run(*o); };
}

}  // namespace pw::cli
