#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/optimizer.h"
#include "app/cli/options/own_ranks.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "app/cli/text/run_report.h"
#include "backends/resources/resources.h"
#include "engine/planning/inputs/limits.h"
#include "engine/processes/failure.h"
#include "engine/run/job.h"
#include "engine/run/rank.h"
#include "engine/run/record.h"
#include "engine/run/settings.h"
#include "engine/run/start.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/plan/plan_fits.h"

namespace pw::cli {
namespace {

/// A call of `run`.
struct RunCall {
  RunRequest request;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
  bool json = false;
};

/// This process's part of the job: a rank. Its result, on rank 0, is printed.
void printRank(const RunCall& call, const PlanToRun& run, const RankEnvironment& environment, RankContact& contact, StoredRun& stored) {
  const RunObserver observer{[](const std::string& sentence) { warn(sentence); },
                             [&] { return progress("train " + run.plan.modelName, call.progressStyle); }};
  RankOutcome outcome = runRank(run.settings, run.plan, environment, contact, stored, observer);
  if (outcome.evaluation) printEvaluation(*outcome.evaluation, call.request.outputs, call.json);
  if (!outcome.training) return;
  call.json ? printJson(*outcome.training) : printText(*outcome.training, call.request.store);
  if (const std::string& failure = outcome.training->record.failure; !failure.empty()) throw Error(failure);
}

int runOrStartRanks(const RunCall& call, const std::optional<RankEnvironment>& environment, RankContact& contact) {
  const RunRequest& request = call.request;
  const PlanToRun run = planToRun(request);
  if (request.zero1.value_or(false) && optimizerShards(true, run.plan.replicas, run.plan.schedule.placement) == 1)
    throw UsageError(fmt::format("--zero1 spreads the optimizer's state over replicas, and {} has one; omit it", request.plan));
  const int ranks = worldSize(run.plan);
  const FileTime started = FileTime::clock::now();
  const bool isFirst = !environment || (environment->rank == JobRank(0) && environment->statusFd < 0);
  if (isFirst) {
    prepareFiles(run.settings);
    for (const std::string& note : notesOn(run.settings, run.plan)) warn(note);
  }
  if (environment) {
    requireWorldSize(*environment, ranks, request.plan);
    StoredRun stored(run.settings, run.plan);
    try {
      printRank(call, run, *environment, contact, stored);
      return kYes;
    } catch (const UsageError& e) {
      if (isFirst && stored.id()) stored.fail(causeOf(e));
      reportRankAbsence(request, *environment, e, contact);
      failRank(*environment, e, &complain);
    } catch (const std::exception& e) {  // of all ranks' records our launcher tells
      reportRankAbsence(request, *environment, e, contact);
      const bool alone = environment->statusFd < 0;
      if (isFirst) stored.fail(causeOf(e));
      failRank(*environment, Error(causeOf(e) + (alone ? flightNote(request, started, environment->rank.value, 1) : "")), &complain);
    }
  }
  if (!request.synthetic) {
    const ModelGraph graph = loadModel(run.plan.modelFiles);
    requireFits(run.plan, graph);
    for (const std::string& note : {lossNote(run.settings, run.plan, graph), decayNote(run.settings, run.plan, graph)}) {
      if (!note.empty()) warn(note);
    }
  }
  launchRanks(run.settings, run.plan, ownCall());
  return kYes;
}

int startRun(const RunCall& call) {
  const auto environment = rankEnvironment();
  RankContact contact;
  try {
    return runOrStartRanks(call, environment, contact);
  } catch (const std::exception& e) {  // what a rank refuses before it meets the others
    if (environment) reportRankAbsence(call.request, *environment, e, contact);
    throw;
  }
}

/// The help of `--backend`.
std::string aboutTransports() {
  std::string hosts, gpus;
  for (const Transport transport : valuesOf<Transport>()) {
    const TransportFacts facts = factsOf(transport);
    if (facts.onGpu) gpus += fmt::format("{}{}", gpus.empty() ? "" : " or ", facts.name);
    if (!facts.onGpu) hosts += fmt::format("{} ({}), ", facts.name, facts.links);
  }
  return fmt::format("How ranks exchange messages: {}or {}: the ranks compute on GPUs (default: {} for a plan profiled on GPUs, else {})",
                     hosts, gpus, nameOf(defaultTransport(true)), nameOf(defaultTransport(false)));
}

/// What is run, on what and how.
void declareExecution(CLI::App& sub, const std::shared_ptr<RunRequest>& o) {
  sub.add_option("PLAN.json", o->plan, "Plan (JSON) of `pipewright plan`")->required()->option_text("PLAN.json");
  sub.add_option("--model", o->models,
                 "The model's archive, if it is no longer where the plan says; once for each where every stage was exported on its own")
      ->option_text("MODEL.pt2");
  sub.add_option("--steps", o->steps, "Training steps (default 1)")->check(wholeFrom(1, 1 << 24))->option_text("N");
  sub.add_option("--store", o->store, "Record the run in this SQLite file, also one that fails (under torchrun and Slurm if rank 0 can)")
      ->option_text("FILE");
  addChoice(sub, "--backend", o->transport, aboutTransports());
  addChoice(
      sub, "--precision", "traced|bf16|fp16", [o](std::string_view name) { o->precision = precisionNamed(name); },
      "Matrix products and the like in bf16 or fp16, the rest and all sums as traced (autocast; default: as the plan was profiled)");
  sub.add_flag_callback(
      "--tf32", [o] { o->tf32 = true; },
      "Allow GPUs to round the inputs of float32 matrix products to 19 bits (TF32; default: as the plan was profiled)");
  sub.add_flag_callback(
      "--no-tf32", [o] { o->tf32 = false; },
      "Do not allow GPUs to round the inputs of float32 matrix products (no TF32; default: as the plan was profiled)");
  sub.add_flag_callback(
      "--no-graphs", [o] { o->graphs = false; },
      "Launch every operator on its own instead of replaying CUDA graphs (default: as the plan was profiled)");
  sub.add_flag_callback(
      "--graphs", [o] { o->graphs = true; },
      "Record each action as a CUDA graph after the first steps and replay it, where a stage can be recorded (default: as the plan was "
      "profiled)");
  sub.add_flag(
      "--synthetic", o->synthetic,
      "Do not compute, but take as long as the plan says and send messages of its sizes: rehearses processes and links without the model");
  addChoice(
      sub, "--backward", o->backward,
      "schedule: the plan's rows (default); dynamic: remote calls and distributed autograd, without a schedule: shows what that buys");
  addChoice(sub, "--order", o->order, "plan: each rank's row as it stands (default); ready: whichever action is ready first");
}

void declareData(CLI::App& sub, const std::shared_ptr<RunRequest>& o) {
  sub.add_option("--data", o->data,
                 "synthetic, a torch.save of a dict of tensors, or a Python function that returns an iterable of batches, each a dict or "
                 "(inputs..., target)")
      ->option_text("FILE|MODULE:FUNCTION|synthetic");
  sub.add_option("--loss", o->loss, "cross_entropy, mse, sum, output:NAME (default: the plan's)")->option_text("LOSS");
  sub.add_option("--loss-count", o->lossCount,
                 "With --loss output:NAME: weigh microbatches by this number instead of samples: auto (targets that the loss does not "
                 "ignore, or its divisor), an output, or an input's elements that are not -100 or V")
      ->option_text("auto|NAME[:ignore=V]");
  addChoice(sub, "--loss-over", o->lossOver, "microbatch (default), or batch: one loss of all outputs");
}

/// The optimizer, its learning rate and the gradients it takes.
void declareUpdate(CLI::App& sub, const std::shared_ptr<RunRequest>& o) {
  addChoice(sub, "--optimizer", o->optimizer, "With torch.optim's arithmetic and defaults (default: as the plan accounts for)");
  sub.add_option("--lr", o->update.learningRate, "Learning rate (default 0.01)")->check(numberFrom(0, 1e6))->option_text("X");
  sub.add_option("--momentum", o->momentum,
                 fmt::format("Momentum of {} (default: as the plan accounts for; 0 with --optimizer)", withMomentum()))
      ->check(numberFrom(0, 1))
      ->option_text("X");
  sub.add_flag("--nesterov", o->update.nesterov, "Nesterov's momentum");
  sub.add_option("--alpha", o->update.alpha, "RMSprop's smoothing constant (default 0.99)")->check(numberFrom(0, 1))->option_text("X");
  sub.add_option("--betas", o->betas, "Adam's decay rates (default 0.9,0.999)")
      ->delimiter(',')
      ->expected(2)
      ->check(numberFrom(0, 1))
      ->option_text("B1,B2");
  sub.add_option("--weight-decay", o->update.weightDecay, "Weight decay (default 0)")->check(numberFrom(0, 1e6))->option_text("X");
  sub.add_option("--warmup", o->update.warmupSteps, "Steps over which the learning rate rises")
      ->check(wholeFrom(0, 1 << 24))
      ->option_text("STEPS");
  sub.add_option("--decay-steps", o->update.decaySteps, "Step at which a cosine has brought the rate down to --final-rate (default: none)")
      ->check(wholeFrom(0, 1 << 24))
      ->option_text("STEP");
  sub.add_option("--final-rate", o->update.finalRate, "Part of the learning rate that remains (default 0)")
      ->check(numberFrom(0, 1))
      ->option_text("X");
  sub.add_option("--clip-norm", o->clipNorm, "Largest norm of the whole model's gradient")
      ->check(numberFrom(kLeastNorm, kMostNorm))
      ->option_text("X");
  sub.add_flag_callback(
      "--zero1", [o] { o->zero1 = true; },
      "Spread the optimizer's state over the replicas (ZeRO stage 1; default: as the plan accounts for)");
  sub.add_flag_callback(
      "--no-zero1", [o] { o->zero1 = false; }, "Keep the optimizer's whole state on every replica");
}

void declareCheckpoints(CLI::App& sub, const std::shared_ptr<RunRequest>& o) {
  sub.add_option("--save", o->save,
                 "Write a checkpoint here at the end: a state dict for torch.load and load_state_dict; {step} in the name is the number "
                 "of steps done; by its end a .safetensors file, or with / a folder of torch.distributed.checkpoint")
      ->option_text("FILE");
  sub.add_option("--save-every", o->saveEvery, "Write it every so many steps too")->check(wholeFrom(1, 1 << 24))->option_text("STEPS");
  sub.add_option("--keep", o->keep, "With {step} in --save: remove this run's older checkpoints but the newest K")
      ->check(wholeFrom(1, 1 << 24))
      ->option_text("K");
  sub.add_option("--resume", o->resume,
                 "Continue from a checkpoint, with this or another plan: a file of --save or torch.save, .safetensors, or a folder of "
                 "torch.distributed.checkpoint")
      ->option_text("PATH");
  sub.add_flag("--reset-optimizer", o->resetOptimizer,
               "With --resume: load only weights and buffers; optimizer, learning rate schedule and steps start fresh");
}

/// Evaluation, and what a run needs beside plan and data.
void declareConditions(CLI::App& sub, const std::shared_ptr<RunRequest>& o) {
  sub.add_option("--log", o->log, "Write loss, learning rate and time of each step here (CSV)")->option_text("FILE");
  sub.add_flag("--eval", o->evaluates, "Forwards only: no dropout, no gradients; the mean loss of --steps batches");
  sub.add_option("--outputs", o->outputs, "With --eval: write the model's outputs here (a dict for torch.load)")->option_text("FILE");
  sub.add_option("--seed", o->seed, "Seed of data, dropout and drawn weights (default 0; with --resume the checkpoint's)")
      ->check(aSeed())
      ->option_text("S");
  sub.add_option("--threads", o->threads, "Intra-op threads of each rank (default: as the plan was profiled)")
      ->check(wholeFrom(1, kMostThreads))
      ->option_text("N");
  sub.add_option_function<double>(
         "--timeout",
         [o](double seconds) {
           o->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
         },
         "Longest time that a wait between ranks may take, in seconds (default 120)")
      ->check(numberFrom(kShortestTimeout, kLongestTimeout))
      ->option_text("SECONDS");
  addLibraryOption(sub, o->libraries);
  sub.add_option("--init", "Draw weights instead of reading them")
      ->check(CLI::IsMember({"random"}))
      ->each([o](const std::string&) { o->initRandom = true; })
      ->option_text("random");
}

/// What is watched, compared and reported.
void declareChecks(CLI::App& sub, const std::shared_ptr<RunCall>& call) {
  const std::shared_ptr<RunRequest> o(call, &call->request);
  sub.add_option("--live", o->live,
                 "Append what each rank is doing to this file (JSON lines), for monitoring programs; ranks on one host; with --backend "
                 "nccl or --backward dynamic at the end of each step")
      ->option_text("FILE");
  addProgress(sub, call->progressStyle);
  sub.add_flag("--verify", o->verify, "Compare the first step with one rank on the same microbatches: boundary values, loss and gradients");
  sub.add_flag("--skip-nonfinite", o->skipNonFinite,
               "Skip the update of a step whose loss or gradients are NaN or infinite, on all ranks, and count it (default: such a step "
               "ends the run)");
  sub.add_flag("--find-nan", o->findNan,
               "Check the results of every operator, forward and backward, to name the first that makes a non-finite number (slow)");
  sub.add_flag(
      "--masked", o->masked,
      "Every microbatch computes the whole batch and counts its own samples only: results that depend on the batch size then agree");
  sub.add_option_function<int>(
         "--recorded-as", [o](int id) { o->recordedAs = RunId(id); }, "Of our launcher to its ranks: the run's number in the store")
      ->group("");
  sub.add_flag("--json", call->json, "Print the result as JSON");
}

}  // namespace

Command addRun(CLI::App& app) {
  auto* sub = app.add_subcommand("run", "Execute a plan: one process per rank, training steps, measured timeline");
  auto call = std::make_shared<RunCall>();
  const std::shared_ptr<RunRequest> o(call, &call->request);
  declareExecution(*sub, o);
  declareData(*sub, o);
  declareUpdate(*sub, o);
  declareCheckpoints(*sub, o);
  declareConditions(*sub, o);
  declareChecks(*sub, call);
  sub->footer(
      "\nExamples:\n"
      "  pipewright run plan.json --steps 20 --store runs.db\n"
      "  pipewright run plan.json --verify\n"
      "  pipewright run plan.json --backend nccl --precision bf16 --steps 20\n"
      "  pipewright run plan.json --synthetic --steps 5 --store runs.db\n"
      "  pipewright run plan.json --data train.pt --optimizer adamw --lr 3e-4 --warmup 100 --steps 1000 --save model.pt --log loss.csv\n"
      "  pipewright run plan.json --data my_data:batches --steps 100\n"
      "  pipewright run plan.json --data test.pt --resume model.pt --eval --outputs logits.pt\n"
      "  pipewright run plan.json --model /elsewhere/gpt.pt2\n"
      "  torchrun --nproc-per-node 2 --no-python pipewright run plan.json");
  return [call] { return startRun(*call); };
}

}  // namespace pw::cli
