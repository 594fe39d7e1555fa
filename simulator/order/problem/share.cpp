#include "simulator/order/problem/share.h"

#include <algorithm>
#include <future>
#include <system_error>
#include <vector>

namespace pw {

void shareParts(int parts, int threads, const std::function<void(int)>& work) {
  threads = std::clamp(threads, 1, parts);
  std::vector<std::future<void>> others;  // they end before this is destroyed
  const auto run = [&](int thread) {
    for (int i = thread; i < parts; i += threads) work(i);
  };
  int alone = threads;  // the first part for which there is no thread
  for (int thread = 1; thread < threads; ++thread) {
    try {
      others.push_back(std::async(std::launch::async, run, thread));
    } catch (const std::system_error&) {
      alone = thread;
      break;
    }
  }
  run(0);
  for (int thread = alone; thread < threads; ++thread) run(thread);
  for (std::future<void>& other : others) other.get();
}

}  // namespace pw
