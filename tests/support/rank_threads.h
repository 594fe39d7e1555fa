#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/processes/rank_environment.h"
#include "schedules/error.h"
#include "tests/support/loopback.h"

namespace pw::test {

/// What a thread as rank `rank` of a job of so many finds in its environment. They meet at that port.
inline RankEnvironment environmentOf(int rank, int ranks, int port) {
  RankEnvironment environment;
  environment.rank = JobRank(rank);
  environment.worldSize = ranks;
  environment.masterAddress = "127.0.0.1";
  environment.masterPort = port;
  environment.oneHost = true;
  environment.token = "secret";
  return environment;
}

/// What each of the ranks of a job ended with, which are threads that do this: `well`, `usage: …` or `error: …`.
inline std::vector<std::string> endsOf(int ranks, const std::function<void(const RankEnvironment&)>& act) {
  const Listener listener;
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      RankEnvironment environment = environmentOf(r, ranks, listener.port);
      if (r == 0) environment.listenFd = ::dup(listener.fd.get());
      std::string& end = ends[static_cast<std::size_t>(r)];
      try {
        act(environment);
        end = "well";
      } catch (const UsageError& problem) {
        end = std::string("usage: ") + problem.what();
      } catch (const Error& problem) {
        end = std::string("error: ") + problem.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace pw::test
