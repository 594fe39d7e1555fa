#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace pw {

/// Calls functions when their time has come, on one thread. They must return quickly and not throw.
class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;
  using Entry = std::pair<Clock::time_point, std::uint64_t>;

  Deadlines() = default;
  ~Deadlines();
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  /// After `stop` it is called at once, by this thread.
  [[nodiscard]] Entry add(Clock::time_point when, std::function<void()> late);
  void remove(const Entry& entry);  ///< does nothing where it was called, or is being called
  void stop();                      ///< waits for the one that is being called, and drops the others
  [[nodiscard]] std::size_t size() const;

 private:
  void wait();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Entry, std::function<void()>> entries_;
  std::uint64_t count_ = 0;
  bool stopped_ = false;
  std::thread thread_;  ///< from the first entry on
};

}  // namespace pw
