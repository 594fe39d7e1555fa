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

KeyValueStore meet(const RankTask& task, const Rendezvous& meeting, RankContact& contact) {
  const JobFields fields = fieldsOf(task.settings, task.plan, task.graph);
  if (!task.met) return meetOthers(task.environment, meeting, fields, contact);
  contact.isInTouch = true;
  requireSameFields(*task.met, meeting, fields);
  return task.met->dictionary();
}

}  // namespace

ConnectedRank connectRank(const RankTask& task, TrainOptions options, RankContact& contact, const RunObserver& observer) {
  const RunSettings& o = task.settings;
  const RankEnvironment& environment = task.environment;
  Rendezvous meeting;
  meeting.deadline = options.deadline;
  KeyValueStore store;
  if (environment.worldSize > 1) {
    meeting = rendezvousOf(environment, options.deadline);
    if (environment.statusFd >= 0 && factsOf(o.transport).waitsCanBeEnded)
      meeting.jobFailed = &listenForFailure();                                   // else the signal ends the process
    if (environment.storeIsElsewhere) torchBackend().prepareProcess(o.threads);  // LibTorch then speaks to that store
    store = meet(task, meeting, contact);
  }
  const TorchBackend& torch = torchBackend();
  if (environment.worldSize == 1 || !environment.storeIsElsewhere) torch.prepareProcess(o.threads);
  if (!o.request.synthetic) loadLibraries(task.plan.libraries);
  if (o.computing.onGpu) {
    GpuRank rank = connectGpus(environment, meeting, store, o.computing.tf32);
    contact.communicator = std::move(rank.communicator);
    options.stage.device = rank.gpu.device;
    if (o.request.synthetic) options.synthetic = SyntheticDevice{rank.gpu.device, rank.gpu.device->spin, nullptr};
    if (environment.rank.value == 0 && !rank.gpu.note.empty()) observer.warn(rank.gpu.note);
  } else if (environment.worldSize > 1) {
    contact.communicator = connectRanks(o.transport, meeting, store, torch);
  } else {
    contact.communicator = std::move(inMemoryCommunicators(1, options.deadline).front());
  }
  connectCalls(o, task.own, meeting, store, torch, *contact.communicator, options);
  store = {};
  reportStartUp(environment, StartUp::Done);
  return {std::move(options), torch};
}

}  // namespace pw
