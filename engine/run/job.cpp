#include "engine/run/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "backends/checkpoints/writer.h"
#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/resources/resources.h"
#include "backends/store/run_store.h"
#include "backends/torch/backend.h"
#include "backends/torch/wheel.h"
#include "engine/live_spans.h"
#include "engine/processes/failure.h"
#include "engine/processes/launcher.h"
#include "engine/run/host_inventory.h"
#include "engine/run/record.h"
#include "engine/training_files.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// Of a plan of an older version, which does not identify its model; otherwise empty.
std::string modelNote(const RunSettings& o, const Plan& plan) {
  if (o.request.synthetic || !plan.fingerprint.digest.empty()) return "";
  return fmt::format("{} is of an older version and does not tell which model it is for; plan the model again to have that checked",
                     o.request.plan);
}

/// The command line for a rank, which continues the record that we began.
std::vector<std::string> callOfRanks(std::vector<std::string> call, std::optional<RunId> record) {
  if (record) {
    const auto command = std::ranges::find(call, "run");
    call.insert(command + 1, {"--recorded-as", std::to_string(record->value)});
  }
  return call;
}

}  // namespace

void takeModels(const RunRequest& o, Plan& plan) {
  if (!o.models.empty() && o.models.size() != plan.modelFiles.size()) {
    throw UsageError(fmt::format("{} is of {}, and --model names {}; give --model once for each.", o.plan,
                                 counted(static_cast<int>(plan.modelFiles.size()), "archive"), o.models.size()));
  }
  for (std::size_t i = 0; i < o.models.size(); ++i) plan.modelFiles[i] = absolutePath(o.models[i]);
  if (o.synthetic || !o.models.empty()) return;
  for (const std::string& file : plan.modelFiles) {
    std::error_code problem;
    if (!fs::exists(file, problem))
      throw UsageError(fmt::format("The model of {}, {}, does not exist any more; name where it is with --model.", o.plan, file));
  }
}

PlanToRun planToRun(const RunRequest& o) {
  Plan plan = loadPlan(o.plan);
  if (!o.synthetic && !plan.profile.sent.empty()) {
    throw UsageError(
        fmt::format("{} is of layer table {}, which has no operators to run; add --synthetic to emulate it, or plan the model's archive.",
                    o.plan, plan.modelName));
  }
  takeModels(o, plan);
  if (!o.loss.empty()) plan.loss = parseLoss(o.loss);
  plan.libraries.insert(plan.libraries.end(), o.libraries.begin(), o.libraries.end());
  if (!o.synthetic) plan.libraries = libraryPaths(plan.libraries);
  RunSettings settings = settle(o, plan);
  refuseWhatCannotRun(settings, plan);
  return {std::move(plan), std::move(settings)};
}

std::vector<std::string> notesOn(const RunSettings& o, const Plan& plan) {
  std::vector<std::string> notes{costsNote(o, plan), optimizerNote(o, plan), modelNote(o, plan)};
  std::erase(notes, "");
  return notes;
}

void prepareFiles(const RunSettings& o) {
  const RunRequest& request = o.request;
  if (!request.resume.empty()) static_cast<void>(resumptionOf(request.resume, o.update, request.resetOptimizer || request.evaluates));
  if (!request.store.empty())
    static_cast<void>(RunStore(request.store, RunStore::Mode::ReadWrite));  // refuse an unusable store before training
  if (!request.save.empty()) {  // a checkpoint that cannot be written is known before the training, not after it
    const std::string path = checkpointPath(request.save, 0);
    if (isFolder(path) && !path.ends_with('/')) {
      throw UsageError(
          fmt::format("{} is a folder; give --save the name of a file, or {}/ for a folder of torch.distributed.checkpoint.", path, path));
    }
    static_cast<void>(CheckpointWriter(path));
  }
  if (!request.live.empty()) {  // the ranks append
    std::ofstream(request.live, std::ios::trunc).flush();
    static_cast<void>(LiveWriter(request.live, JobRank(0)));
  }
}

std::string flightNote(const RunRequest& request, FileTime since, int firstRank, int ranks) {
  const std::string prefix = flightFiles(request);
  for (int r = firstRank; r < firstRank + ranks; ++r) {
    const std::string file = flightFile(prefix, JobRank(r));
    std::error_code absent;
    const FileTime written = std::filesystem::last_write_time(file, absent);
    if (absent || written < since) continue;
    return fmt::format("; see {} for what {} did last and waited for", ranks > 1 ? prefix + "*.json" : file,
                       ranks > 1 ? "each rank" : "it");
  }
  return "";
}

namespace {

/// What ranks hold all the time must fit the host that they share, or they would be stopped one by one, after minutes.
void requireHostHolds(const Plan& plan, bool evaluates) {
  double all = 0;
  for (const StageCost& stage : plan.costs.stages)
    all += static_cast<double>(stage.parameterBytes + (evaluates ? Bytes(0) : stage.gradientBytes));
  all *= plan.replicas * (plan.schedule.placement.bidirectional() ? 2 : 1);
  const Bytes memory = hostInventory().host.memory;
  if (memory == 0 || all <= static_cast<double>(memory)) return;
  throw UsageError(
      fmt::format("The parameters{} of this plan's {} take {} in all, and this host has {}; start the ranks on several hosts, or plan a "
                  "smaller model.",
                  evaluates ? "" : " and gradients", counted(worldSize(plan), "rank"), formatSize(Bytes(static_cast<std::int64_t>(all))),
                  formatSize(memory)));
}

}  // namespace

void launchRanks(const RunSettings& o, const Plan& plan, const std::vector<std::string>& call) {
  requireTorch();
  if (!factsOf(o.transport).onGpu && !o.request.synthetic) requireHostHolds(plan, o.request.evaluates);
  StoredRun stored(o, plan);
  stored.begin();
  const FileTime started = FileTime::clock::now();
  const LaunchResult result =
      launch(worldSize(plan), callOfRanks(call, stored.id()), o.threads, {}, std::chrono::milliseconds(0), o.request.timeout);
  if (result.ok) return;
  LaunchResult told = result;
  told.failure += flightNote(o.request, started, 0, worldSize(plan));
  stored.fail(result.interrupted ? "Interrupted" : result.failure);
  throwUnlessOk(told);
}

}  // namespace pw
