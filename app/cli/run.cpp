#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/numbers.h"
#include "app/cli/output.h"
#include "app/cli/own_ranks.h"
#include "app/cli/run_options.h"
#include "app/cli/run_report.h"
#include "app/cli/run_start.h"
#include "backends/checkpoints/writer.h"
#include "backends/host/gpu_inventory.h"
#include "backends/host/paths.h"
#include "backends/messages/in_memory_communicator.h"
#include "backends/pt2/record.h"
#include "backends/store/run_store.h"
#include "backends/torch/backend.h"
#include "backends/torch/wheel.h"
#include "engine/connect.h"
#include "engine/failure.h"
#include "engine/launcher.h"
#include "engine/process.h"
#include "engine/training_files.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/plan/stage_costs.h"
#include "simulator/step/simulate.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;
using Options = RunOptions;

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// The prediction of one pipeline for all of them.
Trace ofAllReplicas(const Trace& one, int replicas) {
  Trace all = one;
  for (int d = 1; d < replicas; ++d) {
    for (Span span : one.spans) {
      span.rank = Rank(span.rank.value + d * one.ranks);
      span.peer = Rank(span.peer.value + d * one.ranks);
      all.spans.push_back(span);
    }
    for (MemorySample sample : one.memory) {
      sample.rank = Rank(sample.rank.value + d * one.ranks);
      all.memory.push_back(sample);
    }
  }
  all.ranks = one.ranks * replicas;
  normalize(all);
  return all;
}

/// How many ranks share a stage's optimizer state.
int shardsOf(const Options& o, const Plan& plan) {
  return o.shardOptimizer ? plan.replicas * (plan.schedule.placement.bidirectional() ? 2 : 1) : 1;
}

/// A run without steps.
RunRecord recordOf(const Plan& plan, const Options& o, const std::string& startedAt) {
  RunRecord record;
  record.startedAt = startedAt;
  record.backend = o.transport;
  if (o.computing.precision != DType::Unknown) record.backend += fmt::format(", {}", o.precision);
  if (o.computing.tf32) record.backend += ", tf32";
  if (o.synthetic) record.backend += kSyntheticRun;
  record.seed = o.seed;
  record.machine = o.computing.onGpu ? gpuMachine(0) : thisMachine();
  record.plan = plan;
  addOptimizerState(record.plan.costs, stateCopies(o.update), shardsOf(o, plan));
  record.predicted = ofAllReplicas(simulate(plan.schedule, record.plan.costs), plan.replicas);
  return record;
}

/// Joins the ranks' logs step by step.
RunResult assemble(const Plan& plan, const Options& o, const TrainOptions& options, const std::vector<RankLog>& ranks,
                   const std::string& startedAt) {
  RunResult result;
  result.record = recordOf(plan, o, startedAt);
  result.firstStep = options.firstStep;
  result.savedSteps = static_cast<int>(ranks.front().steps.size());
  result.countsSkipped = o.skipNonFinite || ranks.front().lossScale.has_value();
  result.lossScale = ranks.front().lossScale;
  for (std::size_t s = 0; s < ranks.front().steps.size(); ++s) {
    if (const std::string what = nonFinite(ranks, s); !what.empty() && !o.skipNonFinite) {
      result.savedSteps = o.saveEvery > 0 ? static_cast<int>(s) / o.saveEvery * o.saveEvery : 0;
      result.record.failure = nonFiniteSentence(options.firstStep + static_cast<int>(s), what, o.findNan);
      break;
    }
    std::vector<StepLog> logs;
    StepRecord step;
    step.step = options.firstStep + static_cast<int>(s);
    for (const RankLog& rank : ranks) {
      logs.push_back(rank.steps.at(s));
      step.loss += logs.back().loss.value_or(0);
    }
    if (logs.front().gradientNorm) result.gradientNorms.push_back(*logs.front().gradientNorm);
    if (logs.front().skipped) ++result.skippedSteps;
    if (logs.front().skipped && logs.front().notFinite) ++result.nonFiniteSteps;
    step.measured = joinTraces(logs, plan.schedule.rows.size());
    result.record.steps.push_back(std::move(step));
  }
  for (const RankLog& rank : ranks) {
    result.residentPeak.push_back(rank.residentPeak);
    result.startToFirstAction.push_back(rank.startToFirstAction);
    if (options.verify) result.verification = result.verification ? combine(*result.verification, rank.verification) : rank.verification;
  }
  if (result.verification && !result.verification->equal && result.record.failure.empty()) {
    result.record.failure =
        (result.verification->notFinite ? "The first step cannot be verified: " : "The first step is not that of one rank: ") +
        result.verification->firstDifference;
  }
  return result;
}

/// One line for each step, as it ends: what people plot.
class LossLog {
 public:
  /// A resumed training appends to its file.
  LossLog(const std::string& path, bool resumed) : path_(path) {
    const bool isNew = !resumed || !std::ifstream(path).good();
    file_.open(path, resumed ? std::ios::app : std::ios::trunc);
    if (isNew) file_ << "step,loss,learning_rate,gradient_norm,seconds\n";
    check();
  }
  void add(int step, const StepLog& log, double learningRate) {
    Ns begin = std::numeric_limits<Ns>::max(), end = 0;
    for (const Span& span : log.spans) {
      begin = std::min(begin, span.start);
      end = std::max(end, span.end);
    }
    file_ << fmt::format("{},{:.9g},{:.6g},{},{:.6f}\n", step, log.loss.value_or(0), learningRate,
                         log.gradientNorm ? fmt::format("{:.6g}", *log.gradientNorm) : "",
                         log.spans.empty() ? 0.0 : static_cast<double>(end - begin) * 1e-9);
    file_.flush();
    check();
  }

 private:
  void check() const {
    if (!file_) throw Error(fmt::format("Cannot write the loss log {}; check whether its folder exists and the disk is full.", path_));
  }
  std::string path_;
  std::ofstream file_;
};

void evaluateRank(const Options& o, const ModelGraph& graph, const Plan& plan, TrainOptions options, Communicator& communicator,
                  const TorchBackend& torch) {
  std::vector<Evaluation> steps;
  double loss = 0;
  for (int i = 0; i < o.steps; ++i) {
    options.firstStep = i;
    steps.push_back(evaluate(graph, plan, options, communicator, torch));
    loss += steps.back().loss / o.steps;
  }
  if (communicator.rank().value != 0) return communicator.barrier();
  if (!o.outputs.empty()) {
    std::vector<ModelOutput> outputs = steps.front().outputs;
    std::vector<std::int64_t> samples;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto sizes = microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches);
      samples.insert(samples.end(), sizes.begin(), sizes.end());
      for (std::size_t k = 0; i > 0 && k < outputs.size(); ++k) {
        outputs[k].parts.insert(outputs[k].parts.end(), steps[i].outputs[k].parts.begin(), steps[i].outputs[k].parts.end());
      }
    }
    mergeAndSave(o.outputs, outputs, samples);
  }
  communicator.barrier();
  if (!std::isfinite(loss))
    throw Error("The loss of the evaluation is not finite: the model, its weights or the data give NaN or infinity");
  const std::int64_t samples = plan.batch * o.steps;
  if (o.json) {
    Json j{{"loss", loss}, {"samples", samples}, {"outputs", Json::array()}};
    for (const ModelOutput& output : steps.front().outputs) j["outputs"].push_back(output.name);
    if (!o.outputs.empty()) j["outputs_file"] = o.outputs;
    print(versioned(j.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n");
    return;
  }
  print(fmt::format("loss {:.6f} over {}, without dropout and gradients\n", loss, counted(samples, "sample")));
  if (!o.outputs.empty())
    print(fmt::format("{} written to {}\n", counted(static_cast<int>(steps.front().outputs.size()), "output"), o.outputs));
}

void tellLossNote(const Options& o, const Plan& plan, const ModelGraph& graph) {
  if (const std::string note = lossNote(o, plan, graph); !note.empty()) warn(note);
}

/// Trains this rank's part; fills `communicator`, which must outlive a failure: peers that notice must not report before this rank does.
void trainRank(const Options& o, const Plan& plan, const RankEnvironment& environment, std::unique_ptr<Communicator>& communicator,
               bool& isInTouch) {
  const ModelGraph graph = o.synthetic ? ModelGraph() : loadModel(plan.modelFiles);
  if (!o.synthetic) requireFits(plan, graph);
  refuseSharesOfComplexNumbers(o, plan, graph);
  if (!o.synthetic && environment.rank.value == 0 && environment.statusFd < 0) tellLossNote(o, plan, graph);
  bindToCores(environment);
  TrainOptions options = trainOptions(o, plan);
  options.stage.tell = [rank = environment.rank](const std::string& what) { warn(fmt::format("rank {} {}", rank.value, what)); };
  Rendezvous meeting;
  meeting.deadline = options.deadline;
  KeyValueStore store;
  if (environment.worldSize > 1) {
    meeting = rendezvousOf(environment, options.deadline);
    if (environment.statusFd >= 0 && o.transport != "gloo")
      meeting.jobFailed = &listenForFailure();  // Gloo's waits cannot be ended: the signal ends the process
    if (environment.storeIsElsewhere) torchBackend().prepareProcess(o.threads);  // LibTorch then speaks to that store
    store = meetOthers(environment, meeting, fieldsOf(o, plan, graph), isInTouch);
  }
  const TorchBackend& torch = torchBackend();
  if (environment.worldSize == 1 || !environment.storeIsElsewhere) torch.prepareProcess(o.threads);
  if (!o.synthetic) loadLibraries(plan.libraries);
  if (o.computing.onGpu) {
    GpuRank rank = connectGpus(environment, meeting, store, o.computing.tf32);
    communicator = std::move(rank.communicator);
    options.stage.device = rank.gpu.device;
    if (o.synthetic) options.synthetic = SyntheticDevice{rank.gpu.device, rank.gpu.device->spin, nullptr};
    if (environment.rank.value == 0 && !rank.gpu.note.empty()) warn(rank.gpu.note);
  } else if (environment.worldSize > 1) {
    communicator = connectRanks(o.transport, meeting, store, torch);
  } else {
    communicator = std::move(inMemoryCommunicators(1, options.deadline).front());
  }
  store = {};
  reportStartUp(environment, StartUp::Done);
  std::optional<LiveWriter> live;
  if (!o.live.empty()) options.live = &live.emplace(o.live, environment.rank);
  if (o.evaluates) return evaluateRank(o, graph, plan, options, *communicator, torch);
  // The rank that shows progress: rank 0 if it knows the loss, otherwise the rank of the last stage.
  const bool shows =
      options.executor.sumLoss ? environment.rank.value == 0 : plan.schedule.placement.rankOfStage.back() == environment.rank;
  std::function<void(int, int, const std::string&)> show;
  if (shows) show = progress("train " + plan.modelName, parseProgressStyle(o.progressStyle));
  std::optional<LossLog> log;
  if (!o.log.empty() && environment.rank.value == 0) log.emplace(o.log, !o.resume.empty());
  options.onStep = [&](int step, const StepLog& done) {
    if (show) show(step + 1 - options.firstStep, o.steps, fmt::format("loss {:.4f}", done.loss.value_or(0)));
    if (log) log->add(step, done, learningRateAt(o.update, step));
  };
  const std::string startedAt = now();
  Plan trained = plan;
  if (o.synthetic) addOptimizerState(trained.costs, stateCopies(o.update), 1);  // of what a rank updates its stages take their share
  const std::vector<RankLog> logs = gather(trainRank(graph, trained, options, *communicator, torch), *communicator);
  if (logs.empty()) return;
  RunResult result = assemble(plan, o, options, logs, startedAt);
  result.saved = o.save.empty() || result.savedSteps == 0 ? "" : checkpointPath(o.save, result.firstStep + result.savedSteps);
  if (!o.store.empty()) result.id = RunStore(o.store, RunStore::Mode::ReadWrite).add(result.record);
  if (!o.synthetic) result.exported = readExportRecord(graph.files);
  o.json ? printJson(result) : printText(result, o.store);
  if (!result.record.failure.empty()) throw Error(result.record.failure);
}

using FileTime = std::filesystem::file_time_type;

/// Where to read on about a failure, if one of these ranks has written since then what it waited for; else nothing.
std::string flightNote(const Options& o, FileTime since, int firstRank, int ranks) {
  const std::string prefix = flightFiles(o);
  for (int r = firstRank; r < firstRank + ranks; ++r) {
    const std::string file = flightFile(prefix, Rank(r));
    std::error_code absent;
    const FileTime written = std::filesystem::last_write_time(file, absent);
    if (absent || written < since) continue;
    return fmt::format("; see {} for what {} did last and waited for", ranks > 1 ? prefix + "*.json" : file,
                       ranks > 1 ? "each rank" : "it");
  }
  return "";
}

/// A run as it began, for the record that is kept when it fails: by who started the ranks, as none of them may be able to, else by rank 0.
struct Beginning {
  std::string at = now();
  std::size_t known = 0;  ///< runs that the store held
};

Beginning beginningOf(const Options& o) {
  Beginning beginning;
  if (!o.store.empty()) beginning.known = RunStore(o.store, RunStore::Mode::ReadOnly).list().size();
  return beginning;
}

void recordFailure(const Options& o, const Plan& plan, const Beginning& beginning, const std::string& failure) {
  if (o.store.empty()) return;
  RunRecord record = recordOf(plan, o, beginning.at);
  record.failure = failure;
  try {
    RunStore store(o.store, RunStore::Mode::ReadWrite);
    const std::vector<RunSummary> runs = store.list();
    const auto isThisRun = [&](const RunSummary& r) {
      return !r.failure.empty() && record.failure.ends_with(r.failure);
    };  // behind "Rank 0: "
    const bool stored =
        runs.size() > beginning.known && std::any_of(runs.begin() + static_cast<std::ptrdiff_t>(beginning.known), runs.end(), isThisRun);
    if (!stored) store.add(record);
  } catch (const Error&) {
    // What ended the run matters more than that its record is lost, so that is what the user reads.
  }
}

/// Starts the ranks and waits for them.
void launchRanks(const Options& o, const Plan& plan) {
  requireTorch();
  const Beginning beginning = beginningOf(o);
  const FileTime started = FileTime::clock::now();
  const LaunchResult result = launch(worldSize(plan), ownCall(), o.threads, {}, std::chrono::milliseconds(0), deadlineOf(o));
  if (result.ok) return;
  LaunchResult told = result;
  told.failure += flightNote(o, started, 0, worldSize(plan));
  recordFailure(o, plan, beginning, result.interrupted ? "Interrupted" : result.failure);
  throwUnlessOk(told);
}

int runOrStartRanks(Options& o, const std::optional<RankEnvironment>& environment, bool& isInTouch) {
  Plan plan = parsePlan(readFile(o.plan), o.plan);
  takeModels(o, plan);
  if (!o.loss.empty()) plan.loss = o.loss;
  plan.libraries.insert(plan.libraries.end(), o.libraries.begin(), o.libraries.end());
  if (!o.synthetic) plan.libraries = libraryPaths(plan.libraries);
  completeOptimizer(o);
  followPlan(o, plan);
  refuseWhatCannotRun(o, plan);
  const int ranks = worldSize(plan);
  const FileTime started = FileTime::clock::now();
  const bool isFirst = !environment || (environment->rank == Rank(0) && environment->statusFd < 0);
  if (isFirst && !o.resume.empty())
    static_cast<void>(resumptionOf(o.resume, o.update, o.resetOptimizer || o.evaluates));  // refuses before any rank starts
  for (const std::string& note : {costsNote(o, plan), optimizerNote(o, plan), modelNote(o, plan)}) {
    if (isFirst && !note.empty()) warn(note);
  }
  if (isFirst && !o.store.empty())
    static_cast<void>(RunStore(o.store, RunStore::Mode::ReadWrite));  // refuse an unusable store before training
  if (isFirst && !o.save.empty()) {  // a checkpoint that cannot be written is known before the training, not after it
    const std::string path = checkpointPath(o.save, 0);
    if (isFolder(path) && !path.ends_with('/')) {
      throw UsageError(
          fmt::format("{} is a folder; give --save the name of a file, or {}/ for a folder of torch.distributed.checkpoint.", path, path));
    }
    static_cast<void>(CheckpointWriter(path));
  }
  if (isFirst && !o.live.empty()) {  // the ranks append
    std::ofstream(o.live, std::ios::trunc).flush();
    static_cast<void>(LiveWriter(o.live, Rank(0)));
  }
  if (environment) {
    requireWorldSize(*environment, ranks, o.plan);
    const Beginning beginning = isFirst ? beginningOf(o) : Beginning();
    std::unique_ptr<Communicator> communicator;
    try {
      trainRank(o, plan, *environment, communicator, isInTouch);
      return kYes;
    } catch (const UsageError& e) {
      excuseRank(o, *environment, e, isInTouch);
      failRank(*environment, e, &complain);
    } catch (const std::exception& e) {  // of all ranks' records our launcher tells
      excuseRank(o, *environment, e, isInTouch);
      const bool alone = environment->statusFd < 0;
      if (isFirst) recordFailure(o, plan, beginning, causeOf(e));
      failRank(*environment, Error(causeOf(e) + (alone ? flightNote(o, started, environment->rank.value, 1) : "")), &complain);
    }
  }
  if (!o.synthetic) {
    const ModelGraph graph = loadModel(plan.modelFiles);
    requireFits(plan, graph);
    tellLossNote(o, plan, graph);
  }
  launchRanks(o, plan);
  return kYes;
}

int run(Options& o) {
  const auto environment = rankEnvironment();
  bool isInTouch = false;  // with the other ranks, so that these learn from a failure
  try {
    return runOrStartRanks(o, environment, isInTouch);
  } catch (const std::exception& e) {  // what a rank refuses before it meets the others
    if (environment) excuseRank(o, *environment, e, isInTouch);
    throw;
  }
}

}  // namespace

Command addRun(CLI::App& app) {
  auto* sub = app.add_subcommand("run", "Execute a plan: one process per rank, training steps, measured timeline");
  auto o = std::make_shared<Options>();
  sub->add_option("PLAN.json", o->plan, "Plan (JSON) of `pipewright plan`")->required()->option_text("PLAN.json");
  sub->add_option("--model", o->models,
                  "The model's archive, if it is no longer where the plan says; once for each where every stage was exported on its own")
      ->option_text("MODEL.pt2");
  sub->add_option("--steps", o->steps, "Training steps (default 1)")->check(wholeFrom(1, 1 << 24))->option_text("N");
  sub->add_option("--store", o->store, "Record the run in this SQLite file, also one that fails (under torchrun and Slurm if rank 0 can)")
      ->option_text("FILE");
  sub->add_option("--backend", o->transport,
                  "How ranks exchange messages: ucx (shared memory, RDMA, TCP), gloo (TCP), or nccl: the ranks compute on GPUs (default: "
                  "nccl for a plan profiled on GPUs, else ucx)")
      ->check(CLI::IsMember({"ucx", "gloo", "nccl"}))
      ->option_text("ucx|gloo|nccl");
  sub->add_option(
         "--precision", o->precision,
         "Matrix products and the like in bf16 or fp16, the rest and all sums as traced (autocast; default: as the plan was profiled)")
      ->check(CLI::IsMember({"traced", "bf16", "fp16"}))
      ->option_text("traced|bf16|fp16");
  sub->add_flag_callback(
      "--tf32", [o] { o->tf32 = true; },
      "Allow GPUs to round the inputs of float32 matrix products to 19 bits (TF32; default: as the plan was profiled)");
  sub->add_flag_callback(
      "--no-tf32", [o] { o->tf32 = false; },
      "Do not allow GPUs to round the inputs of float32 matrix products (no TF32; default: as the plan was profiled)");
  sub->add_flag_callback(
      "--no-graphs", [o] { o->graphs = false; },
      "Launch every operator on its own instead of replaying CUDA graphs (default: as the plan was profiled)");
  sub->add_flag_callback(
      "--graphs", [o] { o->graphs = true; },
      "Record each action as a CUDA graph after the first steps and replay it, where a stage can be recorded (default: as the plan was "
      "profiled)");
  sub->add_flag(
      "--synthetic", o->synthetic,
      "Do not compute, but take as long as the plan says and send messages of its sizes: rehearses processes and links without the model");
  sub->add_option("--order", o->order, "plan: each rank's row as it stands (default); ready: whichever action is ready first")
      ->check(CLI::IsMember({"plan", "ready"}))
      ->option_text("plan|ready");
  sub->add_option("--data", o->data, "synthetic, or a torch.save of a dict of tensors")->option_text("FILE|synthetic");
  sub->add_option("--loss", o->loss, "cross_entropy, mse, sum, output:NAME (default: the plan's)")->option_text("LOSS");
  sub->add_option("--loss-count", o->lossCount,
                  "With --loss output:NAME: weigh microbatches by this number instead of samples: auto (targets that the loss does not "
                  "ignore, or its divisor), an output, or an input's elements that are not -100 or V")
      ->option_text("auto|NAME[:ignore=V]");
  sub->add_option("--loss-over", o->lossOver, "microbatch (default), or batch: one loss of all outputs")
      ->check(CLI::IsMember({"microbatch", "batch"}))
      ->option_text("microbatch|batch");
  sub->add_option("--optimizer", o->optimizer, "With torch.optim's arithmetic and defaults (default: sgd)")
      ->option_text(optimizerNames("|"));
  sub->add_option("--lr", o->update.learningRate, "Learning rate (default 0.01)")->check(numberFrom(0, 1e6))->option_text("X");
  sub->add_option("--momentum", o->update.momentum, "Momentum of sgd or rmsprop (default 0)")->check(numberFrom(0, 1))->option_text("X");
  sub->add_flag("--nesterov", o->update.nesterov, "Nesterov's momentum");
  sub->add_option("--alpha", o->update.alpha, "RMSprop's smoothing constant (default 0.99)")->check(numberFrom(0, 1))->option_text("X");
  sub->add_option("--betas", o->betas, "Adam's decay rates (default 0.9,0.999)")
      ->delimiter(',')
      ->expected(2)
      ->check(numberFrom(0, 1))
      ->option_text("B1,B2");
  sub->add_option("--weight-decay", o->update.weightDecay, "Weight decay (default 0)")->check(numberFrom(0, 1e6))->option_text("X");
  sub->add_option("--warmup", o->update.warmupSteps, "Steps over which the learning rate rises")
      ->check(wholeFrom(0, 1 << 24))
      ->option_text("STEPS");
  sub->add_option("--decay-steps", o->update.decaySteps, "Step at which a cosine has brought the rate down to --final-rate (default: none)")
      ->check(wholeFrom(0, 1 << 24))
      ->option_text("STEP");
  sub->add_option("--final-rate", o->update.finalRate, "Part of the learning rate that remains (default 0)")
      ->check(numberFrom(0, 1))
      ->option_text("X");
  sub->add_option("--clip-norm", o->clipNorm, "Largest norm of the whole model's gradient")
      ->check(numberFrom(1e-30, 1e18))
      ->option_text("X");
  sub->add_flag("--zero1", o->shardOptimizer, "Spread the optimizer's state over the replicas (ZeRO stage 1)");
  sub->add_option("--save", o->save,
                  "Write a checkpoint here at the end: a state dict for torch.load and load_state_dict; {step} in the name is the number "
                  "of steps done; by its end a .safetensors file, or with / a folder of torch.distributed.checkpoint")
      ->option_text("FILE");
  sub->add_option("--save-every", o->saveEvery, "Write it every so many steps too")->check(wholeFrom(1, 1 << 24))->option_text("STEPS");
  sub->add_option("--keep", o->keep, "With {step} in --save: remove this run's older checkpoints but the newest K")
      ->check(wholeFrom(1, 1 << 24))
      ->option_text("K");
  sub->add_option("--resume", o->resume,
                  "Continue from a checkpoint, with this or another plan: a file of --save or torch.save, .safetensors, or a folder of "
                  "torch.distributed.checkpoint")
      ->option_text("PATH");
  sub->add_flag("--reset-optimizer", o->resetOptimizer,
                "With --resume: load only weights and buffers; optimizer, learning rate schedule and steps start fresh");
  sub->add_option("--log", o->log, "Write loss, learning rate and time of each step here (CSV)")->option_text("FILE");
  sub->add_flag("--eval", o->evaluates, "Forwards only: no dropout, no gradients; the mean loss of --steps batches");
  sub->add_option("--outputs", o->outputs, "With --eval: write the model's outputs here (a dict for torch.load)")->option_text("FILE");
  sub->add_option("--seed", o->seed, "Seed of data, dropout and drawn weights (default 0)")->check(aSeed())->option_text("S");
  sub->add_option("--threads", o->threads, "Intra-op threads of each rank (default: as the plan was profiled)")
      ->check(wholeFrom(1, 1024))
      ->option_text("N");
  sub->add_option("--timeout", o->timeoutSeconds, "Longest time that a wait between ranks may take, in seconds (default 120)")
      ->check(numberFrom(0.1, 1e6))
      ->option_text("SECONDS");
  addLibraryOption(*sub, o->libraries);
  sub->add_option("--init", "Draw weights instead of reading them")
      ->check(CLI::IsMember({"random"}))
      ->each([o](const std::string&) { o->initRandom = true; })
      ->option_text("random");
  sub->add_option("--live", o->live,
                  "Append what each rank is doing to this file (JSON lines), for monitoring programs; ranks on one host; with --backend "
                  "nccl at the end of each step")
      ->option_text("FILE");
  sub->add_option("--progress", o->progressStyle, "auto or json")->option_text("STYLE");
  sub->add_flag("--verify", o->verify,
                "Compare the first step with one rank on the same microbatches: boundary values, loss and gradients");
  sub->add_flag("--skip-nonfinite", o->skipNonFinite,
                "Skip the update of a step whose loss or gradients are NaN or infinite, on all ranks, and count it (default: such a step "
                "ends the run)");
  sub->add_flag("--find-nan", o->findNan,
                "Check the results of every operator, forward and backward, to name the first that makes a non-finite number (slow)");
  sub->add_flag(
      "--masked", o->masked,
      "Every microbatch computes the whole batch and counts its own samples only: results that depend on the batch size then agree");
  sub->add_flag("--json", o->json, "Print the result as JSON");
  sub->footer(
      "\nExamples:\n"
      "  pipewright run plan.json --steps 20 --store runs.db\n"
      "  pipewright run plan.json --verify\n"
      "  pipewright run plan.json --backend nccl --precision bf16 --steps 20\n"
      "  pipewright run plan.json --synthetic --steps 5 --store runs.db\n"
      "  pipewright run plan.json --data train.pt --optimizer adamw --lr 3e-4 --warmup 100 --steps 1000 --save model.pt --log loss.csv\n"
      "  pipewright run plan.json --data test.pt --resume model.pt --eval --outputs logits.pt\n"
      "  pipewright run plan.json --model /elsewhere/gpt.pt2\n"
      "  torchrun --nproc-per-node 2 --no-python pipewright run plan.json");
  return [o] { return run(*o); };
}

}  // namespace pw::cli
