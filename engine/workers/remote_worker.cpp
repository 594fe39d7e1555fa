#include "engine/workers/remote_worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/messages/channel/in_memory_link.h"
#include "backends/torch/backend.h"
#include "engine/processes/connect.h"
#include "engine/processes/meeting.h"
#include "engine/worker.h"
#include "schedules/error.h"

namespace pw {
namespace {

using std::chrono::milliseconds;

/// Where workers fail to connect, rank 0 serves the meeting for so long, so that the others can find out by themselves who is missing.
constexpr milliseconds kGoodbye{2000};

/// Who is in the job, and how this worker reaches them.
struct Connected {
  std::vector<std::string> names;
  LinkMaker link;
  std::optional<Meeting> meeting;  ///< of a job of several workers
};

std::string keyOf(const char* what, int rank) { return fmt::format("workers/{}/{}", what, rank); }

/// Rank 0, which serves the meeting, waits until all have come so far: one that proceeds, or fails, ends the meeting for the others.
void waitForAll(const KeyValueStore& store, const RankEnvironment& environment, const char* what) {
  store.set(keyOf(what, environment.rank.value), "");
  if (environment.rank != JobRank(0)) return;
  for (int r = 0; r < environment.worldSize; ++r) (void)store.get(keyOf(what, r));
}

Connected meetWorkers(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const std::string& name) {
  if (environment.worldSize == 1) return {{name}, inMemoryLinks(1).front(), {}};
  const Rendezvous rendezvous = rendezvousOf(environment, settings.startDeadline);
  reportStartUp(environment, StartUp::Meeting);
  const Meeting meeting = openMeeting(rendezvous);
  const KeyValueStore store = meeting.dictionary();
  store.set(keyOf("name", rendezvous.rank.value), name);  // before they agree, so that nobody waits for it afterwards
  requireSameFields(meeting, rendezvous,
                    {{"the version of pipewright", PW_VERSION, PW_VERSION},
                     {"the transport", std::string(nameOf(settings.transport)), std::string(nameOf(settings.transport))}});
  std::vector<std::string> names;
  for (int r = 0; r < rendezvous.size; ++r) names.push_back(store.get(keyOf("name", r)));
  waitForAll(store, environment, "met");
  reportStartUp(environment, StartUp::Connecting);
  return {std::move(names), linkRanks(settings.transport, rendezvous, store, torchBackend()), meeting};
}

/// To be called by a worker that fails after the meeting.
void sayGoodbye(const Meeting& meeting, const RankEnvironment& environment) noexcept {
  const auto until = std::chrono::steady_clock::now() + kGoodbye;
  try {
    meeting.set(keyOf("failed", environment.rank.value), "");
    for (int r = 0; environment.rank == JobRank(0) && r < environment.worldSize; ++r) {
      const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
      (void)meeting.find(keyOf("failed", r), std::max(left, milliseconds(0)));
    }
  } catch (const std::exception&) {
    return;  // rank 0 is gone: nobody else waits for this worker's word
  }
}

}  // namespace

RemoteWorker::RemoteWorker(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const Define& define) {
  if (factsOf(settings.transport).onGpu)
    throw UsageError(fmt::format("Remote calls go over {}, not {}; tensors of GPUs travel through the memory of their hosts.",
                                 hostTransports(" or "), nameOf(settings.transport)));
  Connected job =
      meetWorkers(environment, settings, settings.name.empty() ? fmt::format("worker{}", environment.rank.value) : settings.name);
  try {
    linked_ = std::make_unique<LinkedWorker>(RemoteSettings{.self = job.link.rank,
                                                            .names = std::move(job.names),
                                                            .deadline = settings.deadline,
                                                            .runningCalls = settings.runningCalls,
                                                            .mostThreads = settings.mostThreads,
                                                            .functions = &torchBackend().autograd()},
                                             job.link, settings.lostAfter, define, settings.sends);
    if (job.meeting) waitForAll(job.meeting->dictionary(), environment, "connected");
  } catch (...) {
    if (job.meeting) sayGoodbye(*job.meeting, environment);
    throw;
  }
  reportStartUp(environment, StartUp::Done);
}

void RemoteWorker::shutdown(Remote::Deadline deadline) {
  try {
    remote().shutdown(deadline);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

}  // namespace pw
