#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "backends/messages/transport.h"
#include "backends/messages/waits.h"
#include "engine/autograd/linked_worker.h"
#include "engine/processes/rank_environment.h"

namespace pw {

struct RemoteWorkerSettings {
  std::string name = {};                                 ///< others call this worker by it; empty: `worker` and its rank
  Transport transport = Transport::Ucx;                  ///< one between hosts; the same on all workers
  std::chrono::milliseconds startDeadline = kUsualWait;  ///< to meet all others and connect
  std::chrono::milliseconds deadline = kUsualWait;       ///< of a call or pass that gives none
  std::chrono::milliseconds lostAfter{10000};            ///< a worker that sends nothing for so long, not even that it lives, is lost
  int runningCalls = 16;                                 ///< see RemoteSettings
  int mostThreads = 1024;
  std::function<bool(JobRank to, const ChannelMessage&)> sends = {};  ///< false: this message gets lost; for tests
};

/// This process as one worker of a job whose workers call functions on each other and run backward passes over all of them
/// (torch.distributed.rpc.init_rpc). Any thread may use it; one thread makes, ends and destroys it.
class RemoteWorker {
 public:
  using Define = LinkedWorker::Define;

  /// Meets the other workers of the job and connects to them; blocks until all have. Loads LibTorch. Throws UsageError where the workers
  /// do not agree (transport, version, two of one name), Error naming who did not come in time, and as LinkedWorker.
  RemoteWorker(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const Define& define = {});

  [[nodiscard]] Remote& remote() { return linked_->remote(); }
  [[nodiscard]] DistributedAutograd& autograd() { return linked_->autograd(); }

  /// Ends the job in good order (`Remote::shutdown`), then leaves. Leaves also where that throws.
  void shutdown(Remote::Deadline deadline = {});

  /// Ends this worker's part at once (`LinkedWorker::leave`), and with it a `shutdown`. So does its end.
  void leave() { linked_->leave(); }

 private:
  std::unique_ptr<LinkedWorker> linked_;
};

}  // namespace pw
