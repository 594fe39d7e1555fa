#pragma once

#include <latch>
#include <span>

#include "backends/messages/in_memory_communicator.h"
#include "backends/messages/ucx/communicator.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/shared_store.h"

namespace pw::test {

using Hosts = std::function<Connect(int ranks, std::chrono::milliseconds deadline)>;

inline Connect inMemory(int ranks, std::chrono::milliseconds deadline) {
  auto all = std::make_shared<std::vector<std::unique_ptr<Communicator>>>(inMemoryCommunicators(ranks, deadline));
  return [all](JobRank rank) { return std::move((*all)[rank.index()]); };
}

inline Connect ucx(int ranks, std::chrono::milliseconds deadline) {
  return [ranks, deadline, store = sharedStore(deadline)](JobRank rank) {
    Rendezvous meeting;
    meeting.rank = rank;
    meeting.size = ranks;
    meeting.deadline = deadline;
    return connectUcx(meeting, store);
  };
}

/// Ranks with a fake GPU each, as threads.
struct Job {
  int ranks;
  std::uint64_t seed = 1;
  std::chrono::milliseconds deadline = kLongWait;
  Hosts hosts = inMemory;
  FakeGpus gpus{ranks, seed};

  /// Returns what went wrong, per rank; no rank leaves before all are done.
  std::vector<std::string> run(const std::function<void(Communicator&)>& work) {
    const Connect connect = hosts(ranks, deadline);
    std::vector<std::string> failures(static_cast<std::size_t>(ranks));
    std::latch done(ranks);
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        gpus.bind(JobRank(r));
        std::unique_ptr<Communicator> me;
        failures[static_cast<std::size_t>(r)] = failureOf([&] {
          me = communicatorOver(connect(JobRank(r)), FakeGpus::device(), gpus.links(JobRank(r)), deadline);
          work(*me);
        });
        done.arrive_and_wait();
      });
    }
    threads.clear();
    return failures;
  }
  static const Device& device() { return FakeGpus::device(); }
  /// A buffer on the calling rank's GPU, which computes these bytes into it.
  HeldBuffer computed(std::vector<std::byte> bytes) {
    HeldBuffer memory = device().allocate(bytes.size());
    gpus.compute([buffer = memory.buffer, bytes = std::move(bytes)] { std::ranges::copy(bytes, buffer.data); });
    return memory;
  }
  HeldBuffer computed(std::size_t bytes, int salt) { return computed(patternOf(bytes, salt)); }
  /// The calling rank's GPU looks whether a buffer holds these bytes from `first` on.
  void expect(const HeldBuffer& memory, std::size_t first, std::vector<std::byte> bytes, const std::string& what) {
    gpus.compute([memory, first, bytes = std::move(bytes), what] {
      EXPECT_TRUE(std::ranges::equal(std::span(memory.buffer.data + first, bytes.size()), bytes)) << what;
    });
  }
  void expect(const HeldBuffer& memory, int salt, const std::string& what) {
    expect(memory, 0, patternOf(memory.buffer.bytes, salt), what);
  }
};

inline HeldBuffer allocated(std::size_t bytes) { return FakeGpus::device().allocate(bytes); }

/// Sends or receives one byte of the host, so that a rank is past a point when another continues.
inline void tell(Communicator& me, JobRank to, std::uint32_t tag) {
  std::byte byte{};
  me.wait(me.send(to, tag, {&byte, 1}));
}
inline void await(Communicator& me, JobRank from, std::uint32_t tag) {
  std::byte byte{};
  me.wait(me.receive(from, tag, {&byte, 1}));
}

}  // namespace pw::test
