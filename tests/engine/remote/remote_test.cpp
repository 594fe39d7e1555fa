#include "engine/remote/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pthread.h>

#include <atomic>
#include <latch>

#include "engine/remote/call_threads.h"
#include "engine/remote/deadlines.h"
#include "tests/support/remote_job.h"

namespace pw::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

JobOptions options(int workers, std::uint64_t seed = 0) {
  JobOptions options;
  options.workers = workers;
  options.seed = seed;
  return options;
}

std::string messageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return "nothing was thrown";
}

void expectIdle(RemoteJob& job) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (int i = 0; i < job.size(); ++i) {
    while (job.remote(i).counts() != RemoteCounts{} && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(job.remote(i).counts(), RemoteCounts{}) << "worker " << i;
  }
}

/// While it lives, no thread can be started: its stack would be larger than the address space.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 60U);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(CallThreads, RefuseTasksWhereTheSystemGivesNoThread) {
  int refused = 0;
  std::latch done(2), started(1), mayEnd(1);
  CallThreads threads(2, 8);
  {
    const NoNewThreads none;
    threads.post([] { FAIL() << "there is no thread for it"; }, [&] { ++refused; });
  }
  EXPECT_EQ(refused, 1);
  threads.post([&] { started.count_down(), mayEnd.wait(), done.count_down(); }, [] { FAIL(); });
  started.wait();
  {
    const NoNewThreads none;
    threads.post([&] { done.count_down(); }, [] { FAIL() << "the first thread can run it"; });
  }
  mayEnd.count_down();
  done.wait();
}

TEST(Deadlines, AreOverOnceTheyAreStopped) {
  Deadlines deadlines;
  deadlines.stop();
  bool isLate = false;
  deadlines.remove(deadlines.add(Deadlines::Clock::now() + 1h, [&] { isLate = true; }));
  EXPECT_TRUE(isLate);
  EXPECT_EQ(deadlines.size(), 0U);
}

TEST(Remote, GivesBackWhateverItIsGiven) {
  RemoteJob job(options(2));
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  const RemoteValue back = job.remote(0).rpcSync("worker1", "echo",
                                                 RemoteValue::List{true, 7, -2.5, "text", Opaque{std::string("\0\1", 2)}, RemoteValue(),
                                                                   RemoteValue::Dict{{"a", RemoteValue::List{1, 2}}, {"b", "c"}}});
  EXPECT_TRUE(back.at(0).boolean());
  EXPECT_EQ(back.at(1).integer(), 7);
  EXPECT_EQ(back.at(2).number(), -2.5);
  EXPECT_EQ(back.at(3).text(), "text");
  EXPECT_EQ(back.at(4).bytes(), std::string("\0\1", 2));
  EXPECT_EQ(back.at(5).content.index(), 0U);
  EXPECT_EQ(back.at(6).at("a").at(1).integer(), 2);
  EXPECT_EQ(back.at(6).at("b").text(), "c");
  EXPECT_THAT(messageOf([&] { (void)back.at(1).text(); }), HasSubstr("an integer where a text is needed"));
  EXPECT_THAT(messageOf([&] { (void)back.at(9); }), HasSubstr("value 9 of a list of 7"));
  EXPECT_THAT(messageOf([&] { (void)back.at(6).at("z"); }), HasSubstr("entry z"));
}

TEST(Remote, RefusesWhatCannotBeSent) {
  RemoteJob job(options(2));
  job.start();
  RemoteValue deep;
  for (int i = 0; i < 70; ++i) deep = RemoteValue(RemoteValue::List{deep});
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "f", deep); }), HasSubstr("64 lists"));
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "f", Local{}); }), HasSubstr("stays there"));
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "f", Reference()); }), HasSubstr("empty reference"));
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "f", TensorHandle()); }), HasSubstr("LibTorch"));
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker7", "f"); }),
              AllOf(HasSubstr("no worker worker7"), HasSubstr("worker0, worker1")));
}

TEST(Remote, BringsExceptionsWithTypeTextAndWorker) {
  RemoteJob job(options(3));
  job.defineEverywhere("fail", [](Remote&, const RemoteValue&) -> RemoteValue { throw std::out_of_range("number 9 of 3"); });
  job.defineEverywhere("forward", [](Remote& here, const RemoteValue& to) { return here.rpcSync(to.text(), "fail"); });
  job.defineEverywhere("odd", [](Remote&, const RemoteValue&) -> RemoteValue { throw 5; });
  job.start();
  const auto expectFrom = [&](const std::string& worker, const std::function<void()>& action) {
    try {
      action();
      FAIL();
    } catch (const RemoteError& problem) {
      EXPECT_EQ(problem.type(), "std::out_of_range");
      EXPECT_EQ(problem.text(), "number 9 of 3");
      EXPECT_EQ(problem.worker(), worker);
    }
  };
  expectFrom("worker1", [&] { job.remote(0).rpcSync("worker1", "fail"); });
  expectFrom("worker2", [&] { job.remote(0).rpcSync("worker1", "forward", "worker2"); });
  expectFrom("worker0", [&] { job.remote(0).rpcSync("worker0", "fail"); });
  const Reference kept = job.remote(0).remote("worker1", "fail");
  expectFrom("worker1", [&] { (void)job.remote(0).toHere(kept); });
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "odd"); }), HasSubstr("not a std::exception"));
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "unknown"); }),
              AllOf(HasSubstr("worker1 knows no function unknown"), HasSubstr("define it")));
}

// A → B → C → A → … with one place for each worker's calls: each level waits on every worker.
TEST(Remote, NestsCallsInCirclesWithOneThreadToCompute) {
  JobOptions one = options(3);
  one.runningCalls = 1;
  RemoteJob job(one);
  job.defineEverywhere("count", [](Remote& here, const RemoteValue& left) -> RemoteValue {
    if (left.integer() == 0) return 0;
    const int next = (here.settings().self.value + 1) % 3;
    return here.rpcSync(here.nameOf(JobRank(next)), "count", left.integer() - 1).integer() + 1;
  });
  job.defineEverywhere("self", [](Remote& here, const RemoteValue& left) -> RemoteValue {
    if (left.integer() == 0) return 0;
    return here.rpcSync(here.nameOf(here.settings().self), "self", left.integer() - 1).integer() + 1;
  });
  job.start();
  EXPECT_EQ(job.remote(0).rpcSync("worker1", "count", 60).integer(), 60);
  EXPECT_EQ(job.remote(0).rpcSync("worker0", "self", 50).integer(), 50);
  expectIdle(job);
}

TEST(Remote, RunsNoMoreCallsAtOnceThanItMay) {
  JobOptions two = options(2);
  two.runningCalls = 2;
  RemoteJob job(two);
  std::atomic<int> running = 0, most = 0;
  job.defineEverywhere("work", [&](Remote&, const RemoteValue&) -> RemoteValue {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {}
    for (int i = 0; i < 10; ++i) std::this_thread::yield();  // each may take as long as the machine is busy
    --running;
    return {};
  });
  job.start();
  std::vector<RemoteFuture> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(job.remote(0).rpcAsync("worker1", "work"));
  for (const RemoteFuture& call : calls) (void)call.wait();
  EXPECT_LE(most, 2);
  EXPECT_GE(most, 1);
}

TEST(Remote, RefusesToNestMoreDeeplyThanItHasThreads) {
  JobOptions few = options(1);
  few.runningCalls = 1;
  few.mostThreads = 5;
  RemoteJob job(few);
  job.defineEverywhere("deeper", [](Remote& here, const RemoteValue&) { return here.rpcSync("worker0", "deeper"); });
  job.start();
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker0", "deeper"); }), HasSubstr("all 5 threads"));
  expectIdle(job);
}

TEST(Remote, KeepsManyCallsFromManyThreadsApart) {
  RemoteJob job(options(4, 17));
  job.defineEverywhere("square", [](Remote&, const RemoteValue& x) -> RemoteValue { return x.integer() * x.integer(); });
  job.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const int number = t * 1000 + i;
        EXPECT_EQ(job.remote(t).rpcSync("worker" + std::to_string(i % 4), "square", number).integer(), std::int64_t{number} * number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expectIdle(job);
}

TEST(Remote, DropsRepeatedMessages) {
  JobOptions twice = options(2);
  twice.repeats = [](const MessageView&) { return true; };
  RemoteJob job(twice);
  std::atomic<int> calls = 0;
  job.defineEverywhere("count", [&](Remote&, const RemoteValue&) -> RemoteValue { return ++calls; });
  job.start();
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(job.remote(0).rpcSync("worker1", "count").integer(), i);
  (void)job.remote(0).toHere(job.remote(0).remote("worker1", "count"));
  expectIdle(job);
  EXPECT_EQ(calls, 11);
}

TEST(Remote, EndsWellWhenAllWorkersAreDone) {
  RemoteJob job(options(3, 5));
  std::atomic<int> done = 0;
  job.defineEverywhere("spread", [&](Remote& here, const RemoteValue& left) -> RemoteValue {
    if (left.integer() > 0) {
      for (std::size_t i = 0; i < here.settings().names.size(); ++i)
        (void)here.rpcAsync(here.nameOf(JobRank(i)), "spread", left.integer() - 1);
    }
    ++done;
    return {};
  });
  job.start();
  (void)job.remote(0).rpcAsync("worker1", "spread", 3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] { EXPECT_EQ(messageOf([&] { job.remote(i).shutdown(); }), "nothing was thrown"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 1 + 3 + 9 + 27) << "no worker ends before the calls of all";
}

TEST(Remote, NamesWhoDoesNotComeToTheEnd) {
  JobOptions soon = options(3);
  soon.deadline = 300ms;
  RemoteJob job(soon);
  job.start();
  std::thread other([&] { EXPECT_THAT(messageOf([&] { job.remote(1).shutdown(); }), HasSubstr("worker2")); });
  EXPECT_THAT(messageOf([&] { job.remote(0).shutdown(); }), HasSubstr("worker2 did not come to the end"));
  other.join();
}

}  // namespace
}  // namespace pw::test
