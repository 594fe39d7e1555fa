#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/messages/global_id.h"

namespace pw {

/// What a worker has sent to each other one, and received from it.
struct CallCounts {
  std::vector<std::uint64_t> sent, received;
  bool operator==(const CallCounts&) const = default;
};

/// The end of a job in good order. Worker 0 asks all workers in rounds; one answers when it has come to the end itself and is idle, with
/// what it has sent and received by then. If in two rounds, one after the other, all numbers are the same and all that was sent was
/// received, then nothing happened between the rounds and nothing is on its way (four counters: Mattern, Distributed Computing 2, 1987).
class Shutdown {
 public:
  struct Parts {
    JobRank self;
    std::vector<std::string> names;
    std::function<void(JobRank to, std::string_view body)> send;
    std::function<bool()> isIdle;
    std::function<CallCounts()> counts;
  };
  explicit Shutdown(Parts parts) : parts_(std::move(parts)) {}

  /// Blocks until all workers are at the end. Throws Error naming who is not, at the deadline or when it is lost.
  void wait(std::chrono::milliseconds deadline);
  void handle(JobRank from, std::string_view body);  ///< a message of another worker's Shutdown; throws Error for damaged ones
  void lost(JobRank worker, const std::string& why);
  void close();                         ///< ends the wait, if there is one, with an error
  [[nodiscard]] bool hasEnded() const;  ///< well or not
  void becameIdle();                    ///< to be called when `isIdle` may have become true

 private:
  void lead(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point until);
  [[nodiscard]] bool allReceived() const;
  void finish(const std::string& problem);

  Parts parts_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool here_ = false;
  std::uint32_t round_ = 0;                      ///< worker 0's
  std::optional<std::uint32_t> requested_;       ///< the round that waits for an answer
  std::map<JobRank, CallCounts> counts_, last_;  ///< worker 0's: this round's and the last's
  std::optional<std::string> ended_;             ///< empty: well
};

}  // namespace pw
