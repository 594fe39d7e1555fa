#include "engine/run/connection.h"

#include <utility>

#include "backends/messages/in_memory_communicator.h"
#include "backends/torch/backend.h"
#include "engine/processes/connect.h"
#include "engine/processes/process.h"
#include "engine/run/backward.h"
#include "engine/run/start.h"
#include "engine/worker.h"

namespace pw {
namespace {

KeyValueStore meet(const RunSettings& o, const Plan& plan, const ModelGraph& graph, const RankEnvironment& environment,
                   const std::optional<Meeting>& met, const Rendezvous& meeting, bool& isInTouch) {
  const JobFields fields = fieldsOf(o, plan, graph);
  if (!met) return meetOthers(environment, meeting, fields, isInTouch);
  isInTouch = true;
  requireSameFields(*met, meeting, fields);
  return met->dictionary();
}

}  // namespace

const TorchBackend& connectRank(const RunSettings& o, const Plan& plan, const ModelGraph& graph, const RankEnvironment& environment,
                                const std::optional<Meeting>& met, std::unique_ptr<Communicator>& communicator, bool& isInTouch,
                                const RunObserver& observer, TrainOptions& options) {
  Rendezvous meeting;
  meeting.deadline = options.deadline;
  KeyValueStore store;
  if (environment.worldSize > 1) {
    meeting = rendezvousOf(environment, options.deadline);
    if (environment.statusFd >= 0 && factsOf(*o.transport).waitsCanBeEnded)
      meeting.jobFailed = &listenForFailure();                                   // else the signal ends the process
    if (environment.storeIsElsewhere) torchBackend().prepareProcess(o.threads);  // LibTorch then speaks to that store
    store = meet(o, plan, graph, environment, met, meeting, isInTouch);
  }
  const TorchBackend& torch = torchBackend();
  if (environment.worldSize == 1 || !environment.storeIsElsewhere) torch.prepareProcess(o.threads);
  if (!o.synthetic) loadLibraries(plan.libraries);
  if (o.computing.onGpu) {
    GpuRank rank = connectGpus(environment, meeting, store, o.computing.tf32);
    communicator = std::move(rank.communicator);
    options.stage.device = rank.gpu.device;
    if (o.synthetic) options.synthetic = SyntheticDevice{rank.gpu.device, rank.gpu.device->spin, nullptr};
    if (environment.rank.value == 0 && !rank.gpu.note.empty()) observer.warn(rank.gpu.note);
  } else if (environment.worldSize > 1) {
    communicator = connectRanks(*o.transport, meeting, store, torch);
  } else {
    communicator = std::move(inMemoryCommunicators(1, options.deadline).front());
  }
  connectCalls(o, plan, meeting, store, torch, *communicator, options);
  store = {};
  reportStartUp(environment, StartUp::Done);
  return torch;
}

}  // namespace pw
