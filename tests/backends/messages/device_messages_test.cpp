#include "backends/messages/device_messages.h"

#include <array>
#include <latch>
#include <random>

#include "tests/support/gpu/gpu_job.h"
#include "tests/support/random_exchange.h"
#include "tests/support/watched_communicator.h"

namespace pw {
namespace {

using std::chrono::milliseconds;
using test::allocated;
using test::await;
using test::FakeGpus;
using test::Hosts;
using test::inMemory;
using test::Job;
using test::tell;
using test::ucx;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Messages of the host's memory go through it as through the transport below.
TestedTransport over(const std::string& name, const Hosts& hosts) {
  return {.name = name, .newJob = [hosts](int ranks, milliseconds deadline) -> Connect {
            return [connect = hosts(ranks, deadline), deadline](JobRank rank) {
              DeviceLinks none;
              none.holds = [](const void*) { return false; };
              none.forget = none.abort = [] {};
              return communicatorOver(connect(rank), hostDevice(), none, deadline);
            };
          }};
}
INSTANTIATE_TEST_SUITE_P(OverInMemory, CommunicatorContract, testing::Values(over("over_in_memory", inMemory)),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(OverUcx, CommunicatorContract, testing::Values(over("over_ucx", ucx)), testing::PrintToStringParamName());

const milliseconds kShort{50};

void runRandomly(std::uint64_t seed, const Hosts& hosts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 3);
  const std::vector<test::Planned> plan = test::randomPlan(ranks, 40, 8, random);
  Job job{.ranks = ranks, .seed = seed, .hosts = hosts};
  const auto failures = job.run([&](Communicator& me) {
    test::RandomRank<Job> rank(job, me, plan, seed * 100 + static_cast<std::uint64_t>(me.rank().value));
    for (int step = 0; step < 3; ++step) rank.step(1000 * step);
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_THAT(job.gpus.violations(), IsEmpty());
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(job.gpus.counts(JobRank(r)).forgets, 3);
    EXPECT_EQ(job.gpus.counts(JobRank(r)).blocks, 0U) << "memory of rank " << r << " was not given back";
  }
}

TEST(DeviceMessages, NoOrderOfMessagesCollectivesAndWaitsMismatchesOrHangs) {
  for (std::uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) runRandomly(seed, inMemory);
}

TEST(DeviceMessages, NeitherOverUcx) {
  for (std::uint64_t seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed) runRandomly(seed, ucx);
}

TEST(DeviceMessages, AMessageNobodyAskedForIsKeptUntilItIs) {
  Job job{.ranks = 2};
  const auto failures = job.run([&](Communicator& me) {
    const std::array<std::size_t, 4> sizes{10, 20, 30, 10};
    std::vector<Communicator::Request> requests;
    std::vector<HeldBuffer> memory;
    if (me.rank() == JobRank(0)) {
      for (int m = 0; m < 4; ++m) {
        memory.push_back(job.computed(sizes[static_cast<std::size_t>(m)], m));
        requests.push_back(me.send(JobRank(1), m == 3 ? 0 : static_cast<std::uint32_t>(m), memory.back().buffer));  // 0, 1, 2, 0
      }
      for (const auto request : requests) me.wait(request);
    } else {
      for (const int m : {2, 1, 0, 3}) {
        memory.push_back(allocated(sizes[static_cast<std::size_t>(m)]));
        const auto request = me.receive(JobRank(0), m == 3 ? 0 : static_cast<std::uint32_t>(m), memory.back().buffer);
        me.wait(request);
        job.expect(memory.back(), m, "message " + std::to_string(m));
      }
    }
    me.barrier();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_THAT(job.gpus.violations(), IsEmpty());
  EXPECT_EQ(job.gpus.counts(JobRank(1)).copies, 2);  // of 0 and 1, which came before 2 was there
}

TEST(DeviceMessages, MessagesOfOneTagKeepTheirOrderAskedForBeforeAndAfterTheyCome) {
  Job job{.ranks = 2};
  const auto failures = job.run([&](Communicator& me) {
    const JobRank peer(1 - me.rank().value);
    constexpr std::uint32_t kLast = 8;
    std::vector<HeldBuffer> memory;
    std::vector<Communicator::Request> requests;
    for (const std::uint32_t tag : {5U, 6U}) {
      for (int m = 0; m < 5; ++m) {
        if (me.rank() == JobRank(0)) {
          memory.push_back(job.computed(64, m));
          requests.push_back(me.send(peer, tag, memory.back().buffer));
          if (m == 4 && tag == 6) tell(me, peer, kLast);
          continue;
        }
        memory.push_back(allocated(64));
        if (m == 0 && tag == 6) {  // all are read in the order of arrival, up to the requested one
          HeldBuffer end = allocated(1);
          requests.push_back(me.receive(peer, kLast + 1, end.buffer));
          await(me, peer, kLast);
          me.wait(requests.back());
          requests.pop_back();
          FakeGpus::device().finish(kLongWait, {});
        }
        requests.push_back(me.receive(peer, tag, memory.back().buffer));
      }
    }
    if (me.rank() == JobRank(0)) {
      memory.push_back(job.computed(1, 0));
      requests.push_back(me.send(peer, kLast + 1, memory.back().buffer));
    }
    for (std::size_t i = requests.size(); i-- > 0;) me.wait(requests[i]);
    if (me.rank() == JobRank(1)) {
      for (int m = 0; m < 10; ++m) job.expect(memory[static_cast<std::size_t>(m)], m % 5, "message " + std::to_string(m));
    }
    me.barrier();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_EQ(job.gpus.counts(JobRank(1)).copies, 5);
}

TEST(DeviceMessages, AReceiveIsWaitedForWhenComputeFollowsItThoughItHasNotMoved) {
  Job job{.ranks = 2};
  job.gpus.holdLinks(true);
  bool looked = false;
  const auto failures = job.run([&](Communicator& me) {
    if (me.rank() == JobRank(0)) {
      const HeldBuffer out = job.computed(100, 7);
      const auto request = me.send(JobRank(1), 1, out.buffer);
      await(me, JobRank(1), 2);
      EXPECT_EQ(me.isDone(request), false);
      job.gpus.holdLinks(false);
      me.wait(request);
      return me.barrier();
    }
    const HeldBuffer in = allocated(100);
    me.wait(me.receive(JobRank(0), 1, in.buffer));
    EXPECT_EQ(in.buffer.data[0], std::byte{0xEE});  // as allocated
    job.expect(in, 7, "what compute reads");
    job.gpus.compute([&] { looked = true; });
    tell(me, JobRank(0), 2);
    me.barrier();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_TRUE(looked);  // a barrier waits for compute
}

TEST(DeviceMessages, WhoeverCameFirstIsTakenFirstOnDeviceAndHost) {
  Job job{.ranks = 3};
  const auto failures = job.run([&](Communicator& me) {
    if (me.rank() == JobRank(1)) await(me, JobRank(0), 2);  // not before rank 2's message was taken
    if (me.rank() != JobRank(0)) {
      const HeldBuffer out = job.computed(8, me.rank().value);
      return me.wait(me.send(JobRank(0), 1, out.buffer));
    }
    const HeldBuffer first = allocated(8), second = allocated(8);
    std::byte never{};
    const auto host = me.receive(JobRank(1), 5, {&never, 1});
    const std::array requests{host, me.receive(JobRank(1), 1, first.buffer), me.receive(JobRank(2), 1, second.buffer)};
    EXPECT_EQ(me.waitAny(requests), 2U);
    EXPECT_EQ(me.isDone(requests[2]), true);
    EXPECT_EQ(me.isDone(requests[1]), false);
    EXPECT_EQ(me.isDone(host), false);
    me.wait(requests[2]);
    tell(me, JobRank(1), 2);
    EXPECT_EQ(me.waitAny(std::span(requests).first(2)), 1U);
    me.wait(requests[1]);
    job.expect(first, 1, "of rank 1");
    job.expect(second, 2, "of rank 2");
    FakeGpus::device().finish(kLongWait, {});
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(DeviceMessages, AMessageThatDoesNotComeIsAnErrorAndWhenLateGoesToTheNextReceive) {
  Job job{.ranks = 2};
  std::latch late(1);
  const Connect connect = inMemory(2, kLongWait);
  std::jthread sender([&] {
    job.gpus.bind(JobRank(1));
    const auto me = communicatorOver(connect(JobRank(1)), FakeGpus::device(), job.gpus.links(JobRank(1)), kLongWait);
    late.wait();
    const HeldBuffer out = job.computed(16, 3);
    me->wait(me->send(JobRank(0), 1, out.buffer));
  });
  job.gpus.bind(JobRank(0));
  const auto me = communicatorOver(connect(JobRank(0)), FakeGpus::device(), job.gpus.links(JobRank(0)), kShort);
  const HeldBuffer first = allocated(16), second = allocated(16);
  EXPECT_THAT(failureOf([&] { me->wait(me->receive(JobRank(1), 1, first.buffer)); }),
              HasSubstr("no message came from rank 1 within 50 ms"));
  late.count_down();
  const auto request = me->receive(JobRank(1), 1, second.buffer);
  const auto end = std::chrono::steady_clock::now() + kLongWait;
  while (me->isDone(request) != true && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  me->wait(request);
  job.expect(second, 3, "the second receive");
  FakeGpus::device().finish(kLongWait, {});
  EXPECT_EQ(first.buffer.data[0], std::byte{0xEE});
}

TEST(DeviceMessages, AMessageNobodyTakesIsAnErrorNamingTheReceiver) {
  Job job{.ranks = 2, .deadline = kShort};
  std::latch failed(2);
  const auto failures = job.run([&](Communicator& me) {
    if (me.rank() == JobRank(1)) return failed.arrive_and_wait();
    const HeldBuffer out = job.computed(16, 3);
    const std::string failure = failureOf([&] { me.wait(me.send(JobRank(1), 1, out.buffer)); });
    failed.arrive_and_wait();
    EXPECT_THAT(failure, HasSubstr("rank 1 took no message within 50 ms"));
    me.abort();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(DeviceMessages, AMessageOfAnotherSizeIsAnErrorNamingBothSizes) {
  for (const bool early : {false, true}) {
    Job job{.ranks = 2};
    const auto failures = job.run([&](Communicator& me) {
      if (me.rank() == JobRank(0)) {
        const HeldBuffer out = job.computed(12, 0), next = job.computed(5, 1);
        const std::array requests{me.send(JobRank(1), 3, out.buffer), me.send(JobRank(1), 4, next.buffer)};
        for (const auto request : requests) me.wait(request);
        return;
      }
      const HeldBuffer in = allocated(4), next = allocated(5);
      if (early) me.wait(me.receive(JobRank(0), 4, next.buffer));
      const std::string failure = failureOf([&] { me.wait(me.receive(JobRank(0), 3, in.buffer)); });
      if (!early) me.wait(me.receive(JobRank(0), 4, next.buffer));
      job.expect(next, 1, "the other message");
      FakeGpus::device().finish(kLongWait, {});
      throw Error(failure);
    });
    EXPECT_THAT(failures[0], IsEmpty());
    EXPECT_THAT(failures[1], HasSubstr("rank 1 expected 4 bytes with tag 3 from rank 0 but got 12")) << early;
    EXPECT_THAT(job.gpus.violations(), IsEmpty());
  }
}

TEST(DeviceMessages, AnAbortEndsWaitsForTheDeviceToo) {
  for (const Hosts& hosts : {Hosts(inMemory), Hosts(ucx)}) {
    Job job{.ranks = 3, .hosts = hosts};
    std::latch begun(3);
    const auto failures = job.run([&](Communicator& me) {
      const HeldBuffer memory = allocated(4);
      const JobRank quiet(2);
      // Rank 0 waits for a send that rank 2 never takes, rank 1 for one that it never sends.
      Communicator::Request request = 0;
      if (me.rank() != quiet) request = me.rank() == JobRank(0) ? me.send(quiet, 9, memory.buffer) : me.receive(quiet, 9, memory.buffer);
      begun.arrive_and_wait();
      if (me.rank() != quiet) return me.wait(request);
      me.abort();
      me.abort();  // twice is once
      me.wait(me.send(JobRank(0), 1, memory.buffer));
    });
    for (const std::size_t r : {0U, 1U}) EXPECT_THAT(failures[r], AllOf(HasSubstr("rank 2 gave up"), Not(HasSubstr("within"))));
    EXPECT_THAT(failures[2], HasSubstr("already left"));
    EXPECT_EQ(job.gpus.counts(JobRank(2)).aborts, 1);
  }
}

TEST(DeviceMessages, AWaitForTheDeviceEndsWhenTheJobFails) {
  for (const Hosts& hosts : {Hosts(inMemory), Hosts(ucx)}) {
    Job job{.ranks = 2, .hosts = hosts};
    job.gpus.holdLinks(true);
    std::latch begun(2);
    std::array<HeldBuffer, 2> memory;  // longer than the ranks
    const auto failures = job.run([&](Communicator& me) {
      HeldBuffer& mine = memory[me.rank().index()] = allocated(4);
      if (me.rank() == JobRank(1)) {
        static_cast<void>(me.send(JobRank(0), 3, mine.buffer));
        begun.arrive_and_wait();
        return me.abort();
      }
      me.wait(me.receive(JobRank(1), 3, mine.buffer));
      job.gpus.compute([] {});
      begun.arrive_and_wait();
      me.barrier();
    });
    EXPECT_THAT(failures[0], AllOf(HasSubstr("rank 1 gave up"), Not(HasSubstr("within"))));
    EXPECT_EQ(failures[1], "");
  }
}

TEST(DeviceMessages, WhoLeavesWithMessagesUnderWayEndsThemFirst) {
  for (const bool holds : {false, true}) {
    Job job{.ranks = 2};
    job.gpus.holdLinks(holds);
    std::array<HeldBuffer, 2> memory;  // longer than the ranks
    const auto failures = job.run([&](Communicator& me) {
      HeldBuffer& mine = memory[me.rank().index()] = allocated(4);
      if (me.rank() == JobRank(0)) {
        static_cast<void>(me.send(JobRank(1), 3, mine.buffer));
      } else {
        me.wait(me.receive(JobRank(0), 3, mine.buffer));
        if (!holds) FakeGpus::device().finish(kLongWait, {});
      }
    });
    EXPECT_THAT(failures, Each(IsEmpty()));
    EXPECT_THAT(job.gpus.violations(), IsEmpty());
    for (const int r : {0, 1}) EXPECT_EQ(job.gpus.counts(JobRank(r)).aborts, holds ? 1 : 0);
  }
}

TEST(DeviceMessages, MessagesMayBeUnderWayAcrossABarrier) {
  Job job{.ranks = 2};
  const auto failures = job.run([&](Communicator& me) {
    const JobRank peer(1 - me.rank().value);
    const HeldBuffer out = job.computed(50, me.rank().value), in = allocated(50);
    const auto sent = me.send(peer, 1, out.buffer);
    me.barrier();
    const auto got = me.receive(peer, 1, in.buffer);
    me.barrier();
    EXPECT_EQ(job.gpus.counts(me.rank()).forgets, 0);
    me.wait(got);
    me.wait(sent);
    job.expect(in, peer.value, "after two barriers");
    me.barrier();
    EXPECT_EQ(job.gpus.counts(me.rank()).forgets, 1);
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_THAT(job.gpus.violations(), IsEmpty());
}

TEST(DeviceMessages, KeepTheirTimesUntilTheSecondBarrier) {
  Job job{.ranks = 2};
  const auto failures = job.run([&](Communicator& me) {
    const JobRank peer(1 - me.rank().value);
    const HeldBuffer out = job.computed(50, me.rank().value), in = allocated(50);
    const auto late = me.send(peer, 1, out.buffer), first = me.receive(peer, 1, in.buffer);
    me.wait(first);
    FakeGpus::device().finish(kLongWait, {});
    const auto times = me.timesOf(first);
    EXPECT_TRUE(times.has_value());
    me.barrier();
    EXPECT_EQ(me.timesOf(first), times);
    me.wait(late);  // was open at the barrier: its times are those of the next two
    EXPECT_TRUE(me.timesOf(late).has_value());
    me.barrier();
    EXPECT_EQ(me.timesOf(first), std::nullopt);
    EXPECT_TRUE(me.timesOf(late).has_value());
    EXPECT_EQ(job.gpus.counts(me.rank()).forgets, 1);
    me.barrier();
    EXPECT_EQ(me.timesOf(late), std::nullopt);
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_THAT(job.gpus.violations(), IsEmpty());
}

TEST(DeviceMessages, ACollectiveWaitsForAllWhileMessagesMoveOn) {
  Job job{.ranks = 2};
  const std::array group{JobRank(0), JobRank(1)};
  const auto failures = job.run([&](Communicator& me) {
    const HeldBuffer sum = job.computed(test::encoded(DType::Int32, test::givenBy(me.rank(), 5, 0))), memory = job.computed(64, 3);
    if (me.rank() == JobRank(1)) {
      await(me, JobRank(0), 2);  // until it has looked
      const auto request = me.send(JobRank(0), 1, memory.buffer);
      me.wait(request);  // rank 0 takes it though it waits for the collective
      me.wait(me.startCollective(Collective::AllReduce, group, DType::Int32, sum.buffer).value());
    } else {
      const auto message = me.receive(JobRank(1), 1, memory.buffer);
      const auto request = me.startCollective(Collective::AllReduce, group, DType::Int32, sum.buffer).value();
      EXPECT_EQ(me.stateOf(request), MessageState::Waiting);
      EXPECT_EQ(me.isDone(request), false);
      tell(me, JobRank(1), 2);
      me.wait(request);
      me.wait(message);
    }
    job.expect(sum, 0, test::encoded(DType::Int32, test::combinedAt(0, Collective::AllReduce, group, 5, 0).values), "the sum");
    me.barrier();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_THAT(job.gpus.violations(), IsEmpty());
}

TEST(DeviceMessages, ACollectiveThatOneDoesNotJoinIsAnErrorNamingTheGroup) {
  Job job{.ranks = 3, .deadline = kShort};
  const auto failures = job.run([&](Communicator& me) {
    const HeldBuffer memory = allocated(16);
    if (me.rank() == JobRank(1)) return;
    const auto request =
        me.startCollective(Collective::AllGather, std::array{JobRank(0), JobRank(1), JobRank(2)}, DType::Float32, memory.buffer).value();
    if (me.rank() == JobRank(0)) return me.wait(request);
    static_cast<void>(me.waitAny(std::array{request}));
  });
  for (const std::size_t r : {0U, 2U})
    EXPECT_THAT(failures[r], HasSubstr("ranks 0, 1 and 2 did not all start a collective of 16 bytes within 50 ms"));
  EXPECT_EQ(failures[1], "");
}

TEST(DeviceMessages, NeedATransportThatCanTellWhatCame) {
  Job job{.ranks = 2};
  const auto cannotTell = [](int ranks, milliseconds deadline) -> Connect {
    return [connect = inMemory(ranks, deadline)](JobRank rank) {
      test::Watch watch;
      watch.cannotTell = true;
      return std::make_unique<test::WatchedCommunicator>(connect(rank), watch);
    };
  };
  job.hosts = cannotTell;
  const auto failures = job.run([&](Communicator& me) {
    std::byte byte{};
    const JobRank peer(1 - me.rank().value);
    const auto sent = me.send(peer, 1, {&byte, 1}), got = me.receive(peer, 1, {&byte, 1});
    EXPECT_EQ(me.isDone(got), std::nullopt);
    EXPECT_THROW((void)me.waitAny(std::array{got}), UsageError);
    me.wait(got);
    me.wait(sent);
    const HeldBuffer memory = allocated(4);
    const auto ask = [&] { return me.rank() == JobRank(0) ? me.send(peer, 2, memory.buffer) : me.receive(peer, 2, memory.buffer); };
    EXPECT_THROW(ask(), UsageError);
    EXPECT_THROW((void)me.startCollective(Collective::AllReduce, std::array{JobRank(0), JobRank(1)}, DType::Float32, memory.buffer),
                 UsageError);
    me.barrier();  // of the host, still
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

}  // namespace
}  // namespace pw
