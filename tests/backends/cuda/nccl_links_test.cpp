#include "backends/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <latch>
#include <optional>

#include "tests/support/gpu/fake_cuda.h"
#include "tests/support/gpu/gpu_job.h"
#include "tests/support/random_exchange.h"

namespace pw {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorContract);  // device_messages_test has it

namespace {

using std::chrono::milliseconds;
using test::FakeCuda;
using test::Hosts;
using test::inMemory;
using test::tell;
using test::ucx;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Ranks with a GPU of the fake CUDA's each, as threads, and NCCL's links between them.
struct Job {
  int ranks;
  std::uint64_t seed = 1;
  milliseconds deadline = kLongWait;
  Hosts hosts = inMemory;
  FakeCuda cuda{seed};

  using Work = std::function<void(Communicator&)>;
  using LinksWork = std::function<void(DeviceLinks&, Communicator& host)>;

  /// Returns what went wrong, per rank; no rank leaves before all are done.
  std::vector<std::string> run(const Work& work) {
    return runAll([&](std::unique_ptr<Communicator> host, DeviceLinks links, const std::function<void()>& meet) {
      const auto me = communicatorOver(std::move(host), FakeCuda::device(), std::move(links), deadline);
      const std::string failure = failureOf([&] {
        work(*me);
        EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);  // as who launches a kernel would take it for the kernel's
      });
      meet();
      return failure;
    });
  }
  /// With the links alone.
  std::vector<std::string> runLinks(const LinksWork& work) {
    return runAll([&](const std::unique_ptr<Communicator>& host, DeviceLinks links, const std::function<void()>& meet) {
      const std::string failure = failureOf([&] { work(links, *host); });
      meet();
      links = {};  // before the host's transport
      return failure;
    });
  }

  static const Device& device() { return FakeCuda::device(); }
  HeldBuffer computed(std::vector<std::byte> bytes) {
    HeldBuffer memory = device().allocate(bytes.size());
    cuda.compute([memory, bytes = std::move(bytes)] { std::ranges::copy(bytes, memory.buffer.data); });
    return memory;
  }
  void expect(const HeldBuffer& memory, std::size_t first, std::vector<std::byte> bytes, const std::string& what) {
    cuda.compute([memory, first, bytes = std::move(bytes), what] {
      EXPECT_TRUE(std::ranges::equal(std::span(memory.buffer.data + first, bytes.size()), bytes)) << what;
    });
  }
  /// All that was made is gone, and the rules of CUDA and NCCL were kept.
  void expectClean() {
    EXPECT_THAT(cuda.violations(), IsEmpty());
    const FakeCuda::Counts counts = cuda.counts();
    EXPECT_EQ(counts.streams, 0);
    EXPECT_EQ(counts.events, 0);
    EXPECT_EQ(counts.communicators, 0);
    EXPECT_EQ(counts.blocks, 0U);
  }

 private:
  using One = std::function<std::string(std::unique_ptr<Communicator>, DeviceLinks, const std::function<void()>&)>;
  std::vector<std::string> runAll(const One& one) {
    const Connect connect = hosts(ranks, deadline);
    std::vector<std::string> failures(static_cast<std::size_t>(ranks));
    std::latch done(ranks);
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        cuda.use(r);
        std::string& failure = failures[static_cast<std::size_t>(r)];
        failure = failureOf([&] {
                    auto host = connect(JobRank(r));
                    DeviceLinks links = ncclLinks(*host, deadline, FakeCuda::computeStream(), &FakeCuda::timeOf);
                    failure = one(std::move(host), std::move(links), [&] { done.arrive_and_wait(); });
                  }) +
                  failure;
        cuda.leave();
      });
    }
    threads.clear();
    return failures;
  }
};

/// Waits until a condition holds, letting messages move on.
template <class Condition>
bool comesTrue(Communicator& me, Condition condition) {
  for (const auto end = std::chrono::steady_clock::now() + kLongWait; !condition();) {
    if (std::chrono::steady_clock::now() >= end) return false;
    me.progress();
    std::this_thread::yield();
  }
  return true;
}

void runRandomly(std::uint64_t seed, const Hosts& hosts, std::map<std::string, int>& asked) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 3);
  const std::vector<test::Planned> plan = test::randomPlan(ranks, 30, 15, random);
  Job job{.ranks = ranks, .seed = seed, .hosts = hosts};
  const auto failures = job.run([&](Communicator& me) {
    test::RandomRank<Job> rank(job, me, plan, seed * 100 + static_cast<std::uint64_t>(me.rank().value));
    for (int step = 0; step < 3; ++step) rank.step(1000 * step);
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  job.expectClean();
  const FakeCuda::Counts counts = job.cuda.counts();
  EXPECT_EQ(counts.aborts, 0);
  EXPECT_GT(counts.inProgress, 0);
  for (const auto& [function, calls] : counts.asked) asked[function] += calls;
}

TEST(NcclLinks, NoOrderOfMessagesCollectivesAndWaitsMismatchesOrHangs) {
  std::map<std::string, int> asked;
  for (std::uint64_t seed = 1; seed <= 25 && !testing::Test::HasFailure(); ++seed) runRandomly(seed, inMemory, asked);
  for (const char* const function : {"send", "receive", "all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast"}) {
    EXPECT_GT(asked[function], 0) << function;
  }
}

TEST(NcclLinks, NeitherOverUcx) {
  std::map<std::string, int> asked;
  for (std::uint64_t seed = 101; seed <= 104 && !testing::Test::HasFailure(); ++seed) runRandomly(seed, ucx, asked);
}

TEST(NcclLinks, CollectivesGiveThePlainSumForAllTypesAndUnevenPieces) {
  for (const int ranks : {2, 3}) {
    Job job{.ranks = ranks};
    const auto failures = job.run([&](Communicator& me) {
      std::vector<JobRank> group;
      for (int r = 0; r < ranks; ++r) group.emplace_back(r);
      int salt = 0;
      for (const DType dtype : test::kSummed) {
        for (const Collective what : {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
          for (const std::size_t elements : {0U, 1U, 2U, 3U, 5U, 6U, 7U, 1000U, 1003U}) {
            const HeldBuffer memory = job.computed(test::encoded(dtype, test::givenBy(me.rank(), elements, ++salt)));
            const auto request = me.startCollective(what, group, dtype, memory.buffer);
            ASSERT_TRUE(request.has_value());
            me.wait(*request);
            const test::Combined right = test::combinedAt(me.rank().index(), what, group, elements, salt);
            const std::size_t first = right.first * widthOf(dtype);
            job.expect(memory, first, test::encoded(dtype, right.values),
                       std::string(nameOf(dtype)) + ", " + std::to_string(elements) + " elements");
          }
        }
      }
      const HeldBuffer other = job.device().allocate(32);
      for (const DType dtype : {DType::Bool, DType::Int16, DType::ComplexFloat}) {
        EXPECT_EQ(me.startCollective(Collective::AllReduce, group, dtype, other.buffer), std::nullopt);
      }
      std::vector<std::byte> host(32);
      EXPECT_EQ(me.startCollective(Collective::AllReduce, group, DType::Float32, bytesOf(host)), std::nullopt);
      me.barrier();
    });
    EXPECT_THAT(failures, Each(IsEmpty()));
    job.expectClean();
  }
}

TEST(NcclLinks, GroupsAndLinksOfTheSameRanksAskedForInAnotherOrderAreNotMixedUp) {
  Job job{.ranks = 3};
  const std::vector<std::vector<JobRank>> groups{
      {JobRank(0), JobRank(1)}, {JobRank(0), JobRank(1), JobRank(2)}, {JobRank(0), JobRank(2)}, {JobRank(1), JobRank(2)}};
  // Rank 0 gives the ids of three groups and of a link, which the others want in other orders.
  const std::array<std::vector<std::size_t>, 3> orders{{{0, 1, 2}, {1, 3, 0}, {2, 3, 1}}};
  const auto failures = job.run([&](Communicator& me) {
    std::vector<Communicator::Request> requests;
    std::vector<HeldBuffer> memory;
    const HeldBuffer message = me.rank() == JobRank(0) ? job.computed(patternOf(9, 4)) : job.device().allocate(9);
    if (me.rank() == JobRank(1)) requests.push_back(me.receive(JobRank(0), 1, message.buffer));
    for (const std::size_t g : orders[me.rank().index()]) {
      memory.push_back(job.computed(test::encoded(DType::Float32, test::givenBy(me.rank(), 10, static_cast<int>(g)))));
      requests.push_back(me.startCollective(Collective::AllReduce, groups[g], DType::Float32, memory.back().buffer).value());
    }
    if (me.rank() == JobRank(0)) requests.push_back(me.send(JobRank(1), 1, message.buffer));
    for (const auto request : requests) me.wait(request);
    if (me.rank() == JobRank(1)) job.expect(message, 0, patternOf(9, 4), "the message");
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const std::size_t g = orders[me.rank().index()][i];
      const auto right = test::combinedAt(0, Collective::AllReduce, groups[g], 10, static_cast<int>(g));
      job.expect(memory[i], 0, test::encoded(DType::Float32, right.values), "group " + std::to_string(g));
    }
    me.barrier();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  job.expectClean();
}

TEST(NcclLinks, MessagesBothWaysMoveThoughTheirSendersDoSomethingElse) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Job job{.ranks = 2, .seed = seed};
    std::atomic<int> got = 0;
    const auto failures = job.run([&](Communicator& me) {
      const JobRank peer(1 - me.rank().value);
      const HeldBuffer out = job.computed(patternOf(500, me.rank().value)), in = job.device().allocate(500);
      const auto sent = me.send(peer, 1, out.buffer), received = me.receive(peer, 1, in.buffer);
      me.wait(received);
      job.expect(in, 0, patternOf(500, peer.value), "what both sent at once");
      const HeldBuffer next = job.device().allocate(500);
      const auto more = me.rank() == JobRank(0) ? me.send(peer, 2, out.buffer) : me.receive(peer, 2, next.buffer);
      // Rank 0 calls nothing of ours before rank 1 has the second message.
      if (me.rank() == JobRank(1)) me.wait(more);
      job.device().finish(kLongWait, {});
      ++got;
      for (const auto end = std::chrono::steady_clock::now() + kLongWait; got < 2 && std::chrono::steady_clock::now() < end;)
        std::this_thread::yield();
      EXPECT_EQ(got, 2);
      if (me.rank() == JobRank(0)) me.wait(more);
      me.wait(sent);
      me.barrier();
    });
    EXPECT_THAT(failures, Each(IsEmpty()));
    job.expectClean();
  }
}

TEST(NcclLinks, SendWhatComputeWritesLaterAndTellHowFarItIs) {
  Job job{.ranks = 2};
  const auto failures = job.run([&](Communicator& me) {
    std::latch written(1);
    const HeldBuffer memory = job.device().allocate(400);
    if (me.rank() == JobRank(1)) {
      const auto request = me.receive(JobRank(0), 1, memory.buffer);
      EXPECT_EQ(me.stateOf(request), MessageState::Waiting);  // it is not announced
      tell(me, JobRank(0), 2);
      me.wait(request);
      job.expect(memory, 0, patternOf(400, 8), "what was written late");
      return me.barrier();
    }
    test::await(me, JobRank(1), 2);
    job.cuda.compute([&written] { written.wait(); });
    job.cuda.compute([buffer = memory.buffer] { std::ranges::copy(patternOf(400, 8), buffer.data); });
    const auto request = me.send(JobRank(1), 1, memory.buffer);
    EXPECT_NE(me.stateOf(request), MessageState::Done);  // it waits for the link, which another thread connects
    EXPECT_TRUE(comesTrue(me, [&] { return me.stateOf(request) == MessageState::Moving; }));
    EXPECT_EQ(me.isDone(request), false);
    written.count_down();
    EXPECT_TRUE(comesTrue(me, [&] { return me.isDone(request) == true; }));
    EXPECT_EQ(me.stateOf(request), MessageState::Done);
    me.wait(request);
    me.barrier();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  job.expectClean();
}

TEST(NcclLinks, APeerThatDoesNotConnectIsAnErrorAtTheDeadline) {
  Job job{.ranks = 3, .deadline = milliseconds(50)};
  const auto failures = job.runLinks([&](DeviceLinks& links, Communicator& host) {
    if (host.rank() == JobRank(2)) return;
    const HeldBuffer memory = job.device().allocate(16);
    if (host.rank() == JobRank(0)) return links.order(links.receive(JobRank(2), memory.buffer));
    links.order(links.startCollective(Collective::AllReduce, std::array{JobRank(0), JobRank(1), JobRank(2)}, DType::Float32, memory.buffer)
                    .value());
  });
  EXPECT_THAT(
      failures,
      ElementsAre("NCCL did not connect rank 2 and rank 0 within 50 ms; the oldest open operation is receive 1 from rank 2, of 16 bytes, "
                  "which has not begun; check whether another rank hangs, or raise --timeout",
                  "NCCL did not connect ranks 0, 1 and 2 within 50 ms; the oldest open operation is all-reduce 1, of 16 bytes, "
                  "which has not begun; check whether another rank hangs, or raise --timeout",
                  ""));
  job.expectClean();
}

TEST(NcclLinks, AFailureOfNcclIsAnErrorWithItsWordsWhoeverWaits) {
  for (const bool connected : {true, false}) {
    Job job{.ranks = 2};
    const auto failures = job.run([&](Communicator& me) {
      const HeldBuffer memory = job.device().allocate(16);
      if (connected && me.rank() == JobRank(1)) me.wait(me.receive(JobRank(0), 1, memory.buffer));
      if (connected && me.rank() == JobRank(0)) me.wait(me.send(JobRank(1), 1, memory.buffer));
      if (me.rank() == JobRank(1)) {
        job.device().finish(kLongWait, {});
        return tell(me, JobRank(0), 3);
      }
      test::await(me, JobRank(1), 3);
      const auto request = me.send(JobRank(1), 2, memory.buffer);
      if (connected) {
        EXPECT_TRUE(comesTrue(me, [&] { return me.stateOf(request) == MessageState::Moving; }));
      }
      job.cuda.fail(ncclRemoteError, connected ? "the network is gone\nin line 7" : "");
      me.wait(request);
    });
    const std::string reason = connected ? "the network is gone" : "remote process exited or there was a network error";
    const std::string oldest = connected ? "send 2 to rank 1, of 16 bytes" : "send 1 to rank 1, of 16 bytes, which has not begun";
    EXPECT_EQ(failures[0], "NCCL failed between rank 0 and rank 1 (" + reason + "); the oldest open operation is " + oldest +
                               "; see the other rank's message, or set NCCL_DEBUG=WARN");
    EXPECT_EQ(failures[1], "");
    job.expectClean();
  }
}

TEST(NcclLinks, AnAbortEndsWaitsAndStatesStayAsTheyWere) {
  for (const Hosts& hosts : {Hosts(inMemory), Hosts(ucx)}) {
    Job job{.ranks = 2, .hosts = hosts};
    std::latch waiting(1);
    const auto failures = job.run([&](Communicator& me) {
      const HeldBuffer memory = job.device().allocate(16), other = job.device().allocate(16);
      if (me.rank() == JobRank(1)) {
        me.wait(me.receive(JobRank(0), 1, memory.buffer));
        job.device().finish(kLongWait, {});
        waiting.wait();
        me.abort();
        me.wait(me.startCollective(Collective::AllReduce, std::array{JobRank(0), JobRank(1)}, DType::Float32, memory.buffer).value());
      }
      const auto first = me.send(JobRank(1), 1, memory.buffer), second = me.send(JobRank(1), 2, memory.buffer),
                 wanted = me.receive(JobRank(1), 3, other.buffer);
      const auto sum = me.startCollective(Collective::AllReduce, std::array{JobRank(0), JobRank(1)}, DType::Float32, other.buffer).value();
      EXPECT_TRUE(comesTrue(me, [&] { return me.isDone(first) == true && me.stateOf(second) == MessageState::Moving; }));
      waiting.count_down();
      const std::string failure = failureOf([&] { me.wait(sum); });
      for (const bool left : {false, true}) {
        if (left) me.abort();
        EXPECT_EQ(me.stateOf(first), MessageState::Done);
        EXPECT_EQ(me.stateOf(second), MessageState::Moving);
        EXPECT_EQ(me.stateOf(wanted), MessageState::Waiting);
        EXPECT_EQ(me.stateOf(sum), MessageState::Waiting);
      }
      throw Error(failure);
    });
    EXPECT_THAT(failures[0], AllOf(HasSubstr("rank 1 gave up"), Not(HasSubstr("within"))));
    EXPECT_THAT(failures[1], HasSubstr("already left"));
    job.expectClean();
  }
}

/// The send waits for compute, which waits for a message that never comes: whichever link were ended alone would wait for the other.
TEST(NcclLinks, AnAbortEndsLinksThatWaitForEachOther) {
  Job job{.ranks = 2};
  const auto failures = job.runLinks([&](DeviceLinks& links, Communicator& host) {
    const HeldBuffer memory = job.device().allocate(16), other = job.device().allocate(16);
    const JobRank peer(1 - host.rank().value);
    const auto first = links.send(peer, memory.buffer), theirs = links.receive(peer, other.buffer);
    const auto isDone = [&](std::uint64_t operation) { return links.isDone(operation); };
    EXPECT_TRUE(comesTrue(host, [&] { return isDone(first) && isDone(theirs); }));
    if (host.rank() == JobRank(1)) return;
    const auto wanted = links.receive(peer, other.buffer);
    links.order(wanted);
    const auto later = links.send(peer, memory.buffer);
    EXPECT_TRUE(comesTrue(host, [&] {
      return !isDone(later) && links.stateOf(wanted) == MessageState::Moving && links.stateOf(later) == MessageState::Moving;
    }));
    links.abort();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  job.expectClean();
}

/// A thread that asks CUDA for more than a stream takes waits in that call, here outside of all.
TEST(NcclLinks, WhatNobodyAsksForIsEndedAtTheDeadline) {
  Job job{.ranks = 2, .deadline = milliseconds(1500)};
  const auto failures = job.runLinks([&](DeviceLinks& links, Communicator& host) {
    const HeldBuffer memory = job.device().allocate(16);
    const auto first = host.rank() == JobRank(0) ? links.send(JobRank(1), memory.buffer) : links.receive(JobRank(0), memory.buffer);
    EXPECT_TRUE(comesTrue(host, [&] { return links.isDone(first); }));
    if (host.rank() == JobRank(0)) return;
    links.order(links.receive(JobRank(0), memory.buffer));
    job.device().finish(kLongWait, {});
    static_cast<void>(links.isDone(first));
  });
  EXPECT_THAT(failures, ElementsAre("",
                                    "NCCL had not finished a message or collective between rank 0 and rank 1 1500 ms after it was posted; "
                                    "the oldest open operation is "
                                    "receive 2 from rank 0, of 16 bytes; check whether another rank hangs, or raise --timeout"));
  job.expectClean();
}

}  // namespace
}  // namespace pw
