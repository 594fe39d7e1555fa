#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/messages/device.h"

struct CUstream_st;

namespace pw::test {

/// What an event waits for: all before it on a stream.
struct Moment {
  bool done = false;
  Ns time = 0;
};

/// CUDA's runtime and NCCL for test programs without GPUs: those of their functions that the links call, over this process's memory. Each
/// stream is served by a thread of its own, after delays drawn at random; communicators connect, and some operations get onto their stream,
/// only after NCCL was asked a few times. One at a time, as the functions are global. Breaches of CUDA's and NCCL's rules are noted in
/// `violations`.
class FakeCuda {
 public:
  explicit FakeCuda(std::uint64_t seed);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  /// This thread uses that GPU from now on, until `leave`, which ends its compute.
  void use(int gpu);
  void leave();
  /// That of the calling thread.
  static const Device& device();
  static CUstream_st* computeStream();
  /// When the event was reached: counts what happens.
  static Ns timeOf(void* event);
  static bool holds(const void* address);
  [[nodiscard]] bool isAlive(const void* address) const;  ///< as `holds`, with the mutex held
  /// The calling thread's GPU computes that, after all that was enqueued before.
  void compute(std::function<void()> task);

  /// All communicators that live fail with that ncclResult_t and that for NCCL's last words.
  void fail(int error, const std::string& words);

  struct Counts {
    int streams = 0, events = 0, communicators = 0;  ///< alive
    int aborts = 0, inProgress = 0;                  ///< so far; the latter: operations that were not put on their stream at once
    std::map<std::string, int> asked;                ///< of NCCL, by function
    std::size_t blocks = 0;                          ///< of memory, alive
  };
  [[nodiscard]] Counts counts();
  [[nodiscard]] std::vector<std::string> violations();

  // For the functions.
  static FakeCuda& current();
  void violate(const std::string& what) { violations_.push_back(what); }
  std::uint64_t random() { return random_(); }

  std::mutex mutex;  ///< of all, and of streams, events and communicators
  std::condition_variable changed;
  Counts counted;
  Ns clock = 0;
  std::set<const void*> communicators;                          ///< that live
  std::string words;                                            ///< NCCL's last
  std::map<std::string, std::weak_ptr<struct Clique>> cliques;  ///< by unique id

 private:
  std::vector<std::string> violations_;
  std::map<const std::byte*, std::size_t> blocks_;   ///< alive
  std::vector<std::unique_ptr<std::byte[]>> freed_;  ///< kept, so that use after free is reported and does no further harm
  std::mt19937_64 random_;
};

}  // namespace pw::test

/// A stream of the fake's. Its tasks are called by its thread, in order; they may wait for `changed` until `ending`.
struct CUstream_st {
  int gpu = 0;
  std::deque<std::function<void()>> tasks;
  bool busy = false, ending = false;
  std::thread thread;

  void add(std::function<void()> task);  ///< with the mutex held
};

struct CUevent_st {
  int gpu = 0;
  std::shared_ptr<pw::test::Moment> last;  ///< null: not recorded yet
};
