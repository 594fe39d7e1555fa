#include "simulator/text/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pw {

void parallelFor(int count, int threads, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto loop = [&] {
    for (int i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < std::min(threads, count); ++t) others.emplace_back(loop);
  } catch (const std::system_error&) {
    // no more threads here: those that started do the work
  }
  loop();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pw
