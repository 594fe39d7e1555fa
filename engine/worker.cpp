#include "engine/worker.h"

#include <sched.h>

#include "backends/messages/local_address.h"
#include "engine/training.h"

namespace pw {

RankLog trainRank(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                  const TorchBackend& torch) {
  Training training(graph, plan, options, communicator, torch);
  for (int i = 0; i < options.steps && training.step(); ++i) {
    const bool last = i + 1 == options.steps;
    if (!options.save.empty() && (last || (options.saveEvery > 0 && (i + 1) % options.saveEvery == 0))) training.save();
  }
  return training.log();
}

void bindToCores(const RankEnvironment& environment) {
  const int ranks = environment.localSize, rank = environment.localRank;
  if (environment.startedBy == StartedBy::Slurm) return;  // it gives each task its cores
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int cores = CPU_COUNT(&allowed);
  if (ranks < 1 || rank < 0 || rank >= ranks || ranks > cores) return;
  cpu_set_t share;
  CPU_ZERO(&share);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (seen >= rank * cores / ranks && seen < (rank + 1) * cores / ranks) CPU_SET(core, &share);
    ++seen;
  }
  sched_setaffinity(0, sizeof(share), &share);  // a refusal costs speed only
}

Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline) {
  Rendezvous meeting;
  meeting.rank = environment.rank;
  meeting.size = environment.worldSize;
  meeting.masterAddress = environment.masterAddress;
  meeting.masterPort = environment.masterPort;
  meeting.token = environment.token;
  meeting.listenFd = environment.listenFd;
  meeting.storeIsElsewhere = environment.storeIsElsewhere;
  meeting.oneHost = environment.oneHost;
  if (!meeting.oneHost) static_cast<void>(localAddressTowards(meeting.masterAddress));  // a name that cannot be found says so now
  meeting.deadline = deadline;
  return meeting;
}

}  // namespace pw
