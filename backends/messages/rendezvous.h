#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "backends/messages/waits.h"
#include "schedules/job_rank.h"

namespace pw {

/// Where the ranks of a job meet.
struct Rendezvous {
  JobRank rank;
  int size = 1;
  std::string masterAddress = "127.0.0.1";
  std::string token;  ///< a secret shared by the ranks of this job
  int masterPort = 0;
  int listenFd = -1;              ///< rank 0: a listening socket to serve the store on; −1: bind `masterPort`
  bool storeIsElsewhere = false;  ///< another process (torchrun's agent) serves the store
  bool oneHost = true;            ///< all ranks on this host: connect over the loopback device
  std::chrono::milliseconds deadline = kUsualWait;
  const std::atomic<bool>* jobFailed =
      nullptr;  ///< may be set at any time, also by a signal handler: ends all waits with an error (UCX only; null: never)
};

/// A small dictionary that all ranks of a job see, to exchange addresses before there are connections.
struct KeyValueStore {
  std::function<void(const std::string& key, const std::string& value)> set;
  /// Waits until the key is set. Throws Error naming the meeting place when that takes longer than the rendezvous' deadline.
  std::function<std::string(const std::string& key)> get;
};

}  // namespace pw
