#include "engine/workers/remote_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <latch>
#include <thread>

#include "schedules/error.h"
#include "tests/support/rank_threads.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

struct Case {
  Transport transport;
  int workers;
};

class RemoteWorkerOf : public testing::TestWithParam<Case> {
 protected:
  static RemoteWorkerSettings settings() { return {.transport = GetParam().transport, .startDeadline = 20s, .deadline = 20s}; }
};

class RemoteWorkerAmongOthers : public RemoteWorkerOf {};
class RemoteWorkerOfThree : public RemoteWorkerOf {};

void defineName(Remote& remote, DistributedAutograd&) {
  remote.define("name", [](Remote& here, const RemoteValue&) -> RemoteValue { return here.nameOf(here.settings().self); });
}

TEST_P(RemoteWorkerOf, CallsAllOthersAndItselfAndEndsInGoodOrder) {
  const auto ends = endsOf(GetParam().workers, [](const RankEnvironment& environment) {
    RemoteWorker worker(environment, settings(), defineName);
    Remote& remote = worker.remote();
    EXPECT_EQ(remote.settings().names.size(), static_cast<std::size_t>(environment.worldSize));
    for (int r = 0; r < environment.worldSize; ++r) {
      const std::string name = "worker" + std::to_string(r);
      EXPECT_EQ(remote.rpcSync(name, "name").text(), name);
      EXPECT_EQ(remote.toHere(remote.remote(name, "name")).text(), name);
    }
    worker.shutdown();
    EXPECT_EQ(remote.counts().calls + remote.counts().executing + remote.counts().owned, 0U);
    EXPECT_THROW((void)remote.rpcSync("worker0", "name"), Error) << "it has left";
    worker.leave();
  });
  EXPECT_THAT(ends, Each("well"));
}

// A worker ends while others wait for it: their calls end at once. It waits for the functions that run on it.
TEST_P(RemoteWorkerAmongOthers, IsLostToThemOnceItLeaves) {
  std::latch called(GetParam().workers - 1), noticed(GetParam().workers - 1);
  const auto ends = endsOf(GetParam().workers, [&](const RankEnvironment& environment) {
    RemoteWorker worker(environment, settings(), [&](Remote& remote, DistributedAutograd&) {
      remote.define("wait", [&](Remote&, const RemoteValue&) -> RemoteValue {
        called.count_down();
        noticed.wait();
        return {};
      });
    });
    if (environment.rank == JobRank(1)) return called.wait();
    try {
      (void)worker.remote().rpcSync("worker1", "wait");
    } catch (const Error&) {
      noticed.count_down();
      throw;
    }
  });
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (r == 1) continue;
    EXPECT_THAT(ends[r], StartsWith("error: worker1 was lost during the call of wait: rank 1 left"));
  }
}

// Who comes second may destroy the worker, so it waits for the first.
TEST(RemoteWorker, IsLeftOnceAndByBothThreadsTogether) {
  std::latch mayEnd(1);
  const auto ends = endsOf(1, [&](const RankEnvironment& environment) {
    std::latch called(1);
    RemoteWorker worker(environment, {}, [&](Remote& remote, DistributedAutograd&) {
      remote.define("wait", [&](Remote&, const RemoteValue&) -> RemoteValue {
        called.count_down();
        mayEnd.wait();
        return {};
      });
    });
    const RemoteFuture result = worker.remote().rpcAsync("worker0", "wait");
    called.wait();
    auto first = std::async(std::launch::async, [&] { worker.leave(); });
    EXPECT_THROW((void)result.wait(), Error) << "the first has begun";
    auto second = std::async(std::launch::async, [&] { worker.leave(); });
    EXPECT_EQ(second.wait_for(200ms), std::future_status::timeout) << "the function still runs";
    mayEnd.count_down();
    second.get();
    EXPECT_EQ(worker.remote().counts().executing, 0U);
  });
  EXPECT_THAT(ends, Each("well"));
}

// Worker 0 ends because worker 2 did, and worker 1 only waits for the end of the job: it hears of both, and who was first.
TEST_P(RemoteWorkerOfThree, IsNotTakenForTheCauseWhenItLeavesBecauseAnotherDid) {
  const auto ends = endsOf(GetParam().workers, [&](const RankEnvironment& environment) {
    std::latch mayEnd(1);
    RemoteWorker worker(environment, settings(), [&](Remote& remote, DistributedAutograd&) {
      remote.define("end", [&](Remote&, const RemoteValue&) -> RemoteValue {
        mayEnd.count_down();
        return {};
      });
    });
    if (environment.rank == JobRank(2)) return mayEnd.wait();
    if (environment.rank == JobRank(1)) return worker.shutdown();
    worker.remote().rpcSync("worker2", "end");
    while (!worker.remote().isLost(JobRank(2))) std::this_thread::yield();
    (void)worker.remote().rpcSync("worker2", "end");
  });
  EXPECT_THAT(ends[0], StartsWith("error: worker2 was lost"));
  EXPECT_THAT(ends[1], AllOf(StartsWith("error: worker0 was lost"), HasSubstr("worker2 was lost before")));
}

TEST_P(RemoteWorkerOf, HasItsOwnName) {
  const auto ends = endsOf(GetParam().workers, [](const RankEnvironment& environment) {
    RemoteWorkerSettings named = settings();
    named.name = "the worker " + std::to_string(environment.rank.value);
    RemoteWorker worker(environment, named, defineName);
    EXPECT_EQ(worker.remote().rpcSync("the worker 0", "name").text(), "the worker 0");
    worker.shutdown();
  });
  EXPECT_THAT(ends, Each("well"));
}

TEST_P(RemoteWorkerAmongOthers, RefusesAnothersName) {
  EXPECT_THAT(endsOf(GetParam().workers,
                     [](const RankEnvironment& environment) {
                       RemoteWorkerSettings named = settings();
                       named.name = "trainer";
                       const RemoteWorker worker(environment, named);
                     }),
              Each("usage: Two workers are called trainer."));
}

TEST_P(RemoteWorkerOf, MakesNoCallsWhileItsFunctionsAreDefined) {
  const auto ends = endsOf(1, [](const RankEnvironment& environment) {
    RemoteWorkerSettings soon = settings();
    soon.startDeadline = 2s;
    const RemoteWorker worker(environment, soon, [](Remote& remote, DistributedAutograd&) { (void)remote.rpcAsync("worker0", "f"); });
  });
  EXPECT_THAT(ends, Each(HasSubstr("usage: This worker is not connected yet")));
}

std::string nameOfCase(const testing::TestParamInfo<Case>& test) {
  return std::string(nameOf(test.param.transport)) + "_" + std::to_string(test.param.workers);
}
INSTANTIATE_TEST_SUITE_P(Jobs, RemoteWorkerOf,
                         testing::Values(Case{Transport::Ucx, 1}, Case{Transport::Ucx, 2}, Case{Transport::Ucx, 3},
                                         Case{Transport::Gloo, 1}, Case{Transport::Gloo, 2}, Case{Transport::Gloo, 3}),
                         nameOfCase);
INSTANTIATE_TEST_SUITE_P(Jobs, RemoteWorkerAmongOthers,
                         testing::Values(Case{Transport::Ucx, 2}, Case{Transport::Ucx, 3}, Case{Transport::Gloo, 2},
                                         Case{Transport::Gloo, 3}),
                         nameOfCase);
INSTANTIATE_TEST_SUITE_P(Jobs, RemoteWorkerOfThree, testing::Values(Case{Transport::Ucx, 3}, Case{Transport::Gloo, 3}), nameOfCase);

TEST(RemoteWorker, NamesWhoDoesNotComeInTime) {
  const auto ends = endsOf(3, [](const RankEnvironment& environment) {
    if (environment.rank == JobRank(1)) return;
    const RemoteWorker worker(environment, {.startDeadline = 300ms});
  });
  EXPECT_THAT(ends[0], AllOf(StartsWith("error: rank 1 did not come"), HasSubstr("within 300 ms")));
  EXPECT_EQ(ends[2], ends[0]);
}

TEST(RemoteWorker, IsNotLetInWithoutTheTokenOfTheJob) {
  const auto ends = endsOf(2, [](const RankEnvironment& environment) {
    RankEnvironment mine = environment;
    if (mine.rank == JobRank(1)) mine.token = "guessed";
    const RemoteWorker worker(mine, {.startDeadline = 500ms});
  });
  EXPECT_THAT(ends[0], StartsWith("error: rank 1 did not come"));
  EXPECT_THAT(ends[1], StartsWith("error: "));
}

TEST(RemoteWorker, RefusesOtherTransportsThanTheOthersHave) {
  const auto ends = endsOf(2, [](const RankEnvironment& environment) {
    const RemoteWorker worker(environment, {.transport = environment.rank == JobRank(0) ? Transport::Ucx : Transport::Gloo});
  });
  EXPECT_THAT(ends, Each(AllOf(StartsWith("usage: "), HasSubstr("the transport: ucx and gloo"))));
  EXPECT_THAT(endsOf(1, [](const RankEnvironment& environment) { const RemoteWorker worker(environment, {.transport = Transport::Nccl}); }),
              Each(AllOf(StartsWith("usage: "), HasSubstr("not nccl"))));
}

// Gloo writes to connections whose other end may be gone.
TEST(RemoteWorker, OverGlooIsNotEndedByTheSignalOfABrokenConnection) {
  std::signal(SIGPIPE, SIG_DFL);
  const auto ends = endsOf(2, [](const RankEnvironment& environment) {
    RemoteWorker worker(environment, {.transport = Transport::Gloo});
    worker.shutdown();
  });
  EXPECT_THAT(ends, Each("well"));
  EXPECT_EQ(::raise(SIGPIPE), 0) << "or this process ends here";
}

// The functions of one worker cannot be defined: it leaves, and the others name it.
TEST(RemoteWorker, ThatFailsWhileItStartsIsNamedByTheOthers) {
  const auto ends = endsOf(3, [](const RankEnvironment& environment) {
    const auto define = [&](Remote&, DistributedAutograd&) {
      if (environment.rank == JobRank(2)) throw Error("no data on this host");
    };
    RemoteWorker worker(environment, {.startDeadline = 500ms, .deadline = 5s}, define);
    worker.shutdown();
  });
  EXPECT_EQ(ends[2], "error: no data on this host");
  for (const std::size_t other : {0, 1}) EXPECT_THAT(ends[other], AllOf(StartsWith("error: "), HasSubstr("rank 2")));
}

}  // namespace
}  // namespace pw::test
