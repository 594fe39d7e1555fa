#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <random>

#include "backends/host/packed.h"
#include "engine/remote/current_context.h"
#include "tests/support/remote_job.h"

namespace pw::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

std::string messageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return "nothing was thrown";
}

class DroppedMessage : public testing::TestWithParam<MessageKind> {};

TEST_P(DroppedMessage, EndsTheCallAtItsDeadlineNamingTheWorker) {
  JobOptions options{.workers = 3};
  options.deadline = 200ms;
  options.drops = [](const MessageView& view) { return view.kind == GetParam() && (view.from == JobRank(2) || view.to == JobRank(2)); };
  RemoteJob job(options);
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  EXPECT_EQ(job.remote(0).rpcSync("worker1", "echo", 3).integer(), 3);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker2", "echo", 3); }),
              AllOf(HasSubstr("worker2 did not answer the call of echo"), HasSubstr("0.2 s")));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms);
  const Reference kept = job.remote(0).remote("worker2", "echo", 3);
  EXPECT_THAT(messageOf([&] { (void)job.remote(0).toHere(kept); }), HasSubstr("worker2 did not answer the fetch of a reference's value"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DroppedMessage, testing::Values(MessageKind::Call, MessageKind::Result));

TEST(LostWorker, EndsTheCallsToItAndNoOthers) {
  RemoteJob job(JobOptions{.workers = 3});
  std::latch entered(2), mayGo(1);
  job.defineEverywhere("wait", [&](Remote&, const RemoteValue&) -> RemoteValue {
    entered.count_down();
    mayGo.wait();
    return 9;
  });
  job.defineEverywhere("forward", [](Remote& here, const RemoteValue& to) { return here.rpcSync(to.text(), "wait"); });
  job.start();
  const RemoteFuture nested = job.remote(0).rpcAsync("worker1", "forward", "worker2"), other = job.remote(0).rpcAsync("worker1", "wait");
  entered.wait();
  job.kill(2);
  EXPECT_THAT(messageOf([&] { (void)nested.wait(); }),
              AllOf(HasSubstr("worker2 was lost"), HasSubstr("its process ended"), HasSubstr("on worker1")));
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker2", "wait"); }), HasSubstr("worker2 was lost"));
  EXPECT_THAT(messageOf([&] { job.remote(0).shutdown(); }), HasSubstr("worker2 was lost"));
  mayGo.count_down();
  EXPECT_EQ(other.wait().integer(), 9);
}

// Worker 1 alone sees the loss: it tells the others, who then do not take a worker for the cause that leaves because of it.
TEST(LostWorker, IsToldToAllOthers) {
  RemoteJob job(JobOptions{.workers = 4});
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  job.freeze(2);
  const RemoteFuture call = job.remote(3).rpcAsync("worker2", "echo", 1);
  job.remote(1).lost(JobRank(2), "its process ended");
  EXPECT_THAT(messageOf([&] { (void)call.wait(); }), HasSubstr("worker2 was lost during the call of echo: its process ended"));
  job.remote(3).lost(JobRank(1), "it left");
  EXPECT_THAT(messageOf([&] { job.remote(3).rpcSync("worker1", "echo", 1); }),
              HasSubstr("worker1 was lost during the call of echo: it left; worker2 was lost before (its process ended)"));
}

// Worker 1 asks worker 2 for its answer to worker 0; the call to worker 2 gets lost. Worker 1's wait ends first.
TEST(Deadlines, OfCallsWithinCallsEndFirstSoThatTheCallerHearsWhoDidNotAnswer) {
  JobOptions options{.workers = 3};
  options.deadline = 1s;
  options.mostThreads = 8;
  options.drops = [](const MessageView& view) { return view.kind == MessageKind::Call && view.to == JobRank(2); };
  RemoteJob job(options);
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.defineEverywhere("forward", [](Remote& here, const RemoteValue& to) { return here.rpcSync(to.text(), "echo", 1); });
  job.start();
  EXPECT_THAT(messageOf([&] { job.remote(0).rpcSync("worker1", "forward", "worker2"); }),
              AllOf(HasSubstr("worker2 did not answer the call of echo"), HasSubstr("on worker1")));
}

// Functions keep running when nobody waits for them any more, and what they call is given the usual time.
TEST(Deadlines, ThatHavePassedDoNotBoundWhatTheFunctionStillCalls) {
  RemoteJob job(JobOptions{.workers = 3});
  std::latch mayGo(1);
  std::promise<std::int64_t> called;
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.defineEverywhere("late", [&](Remote& here, const RemoteValue& value) {
    mayGo.wait();
    return here.rpcSync("worker2", "echo", value);
  });
  job.defineEverywhere("report", [&](Remote& here, const RemoteValue& value) -> RemoteValue {
    while (std::chrono::steady_clock::now() < currentCallDeadline().value()) std::this_thread::yield();
    try {
      called.set_value(here.rpcSync("worker2", "echo", value).integer());
    } catch (...) {
      called.set_exception(std::current_exception());  // for the test
    }
    return {};
  });
  job.start();
  const Reference kept = job.remote(0).remote("worker1", "late", 5, 50ms);
  const RemoteFuture expired = job.remote(0).rpcAsync("worker1", "report", 6, 50ms);
  EXPECT_THAT(messageOf([&] { (void)expired.wait(); }), HasSubstr("did not answer"));
  mayGo.count_down();
  EXPECT_EQ(job.remote(0).toHere(kept).integer(), 5);
  EXPECT_EQ(called.get_future().get(), 6);
}

// The result of a call is lost: worker 0 is idle once the call has expired, and says so.
TEST(Shutdown, WaitsForCallsThatExpireAndNoLonger) {
  JobOptions options{.workers = 2};
  options.drops = [](const MessageView& view) { return view.kind == MessageKind::Result; };
  RemoteJob job(options);
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  const RemoteFuture call = job.remote(0).rpcAsync("worker1", "echo", 1, 300ms);
  std::thread other([&] { EXPECT_EQ(messageOf([&] { job.remote(1).shutdown(20s); }), "nothing was thrown"); });
  EXPECT_EQ(messageOf([&] { job.remote(0).shutdown(20s); }), "nothing was thrown");
  EXPECT_THAT(messageOf([&] { (void)call.wait(); }), HasSubstr("did not answer"));
  other.join();
}

TEST(Messages, OfAnotherJobOrDamagedEndTheConnectionAndNothingElse) {
  std::mt19937_64 random(11);
  std::vector<ChannelMessage> sent;
  RemoteSettings settings{JobRank(0), {"a", "b"}, 99, 20000ms, 2, 8, nullptr};
  Remote original(settings, [&](JobRank, ChannelMessage message) { sent.push_back(std::move(message)); });
  (void)original.rpcAsync("b", "f", RemoteValue::List{1, "text", RemoteValue::Dict{{"x", 2.5}}});
  const Reference reference = original.share(3);
  (void)original.rpcAsync("b", "f", reference);
  int lost = 0, taken = 0;
  for (int round = 0; round < 2000; ++round) {
    settings.self = JobRank(1);
    Remote victim(settings, [](JobRank, const ChannelMessage&) {});
    victim.define("f", [&](Remote&, const RemoteValue&) -> RemoteValue { return {}; });
    ChannelMessage damaged{sent[random() % sent.size()].head, {}};
    for (auto changes = 1 + random() % 3; changes > 0; --changes)
      damaged.head[random() % damaged.head.size()] = static_cast<char>(random());
    if (random() % 4 == 0) damaged.head.resize(random() % damaged.head.size());
    victim.deliver(JobRank(0), std::move(damaged));
    ++(victim.isLost(JobRank(0)) ? lost : taken);
  }
  EXPECT_GT(lost, 500);
  EXPECT_GT(taken, 0) << "some damage only changes a value";
}

TEST(Messages, ThatCannotBeSentAreCallsThatWereNotMade) {
  const RemoteSettings settings{JobRank(0), {"a"}, 99, 20000ms, 2, 8, nullptr};
  Remote remote(settings, [&](JobRank, const ChannelMessage&) { throw UsageError("the message is too large"); });
  {
    const Reference reference = remote.share(3);
    EXPECT_THROW((void)remote.rpcAsync("a", "f", reference), UsageError);
  }
  EXPECT_EQ(remote.counts(), RemoteCounts{});
}

// However much of a result is missing, its call ends, as nothing else would end it.
TEST(Messages, OfResultsThatAreCutOffEndTheirCalls) {
  const RemoteSettings settings{JobRank(0), {"a", "b"}, 99, 20000ms, 2, 8, nullptr};
  RemoteSettings other = settings;
  other.self = JobRank(1);
  for (const bool throws : {false, true}) {
    std::promise<ChannelMessage> answered;
    Remote callee(other, [&](JobRank, ChannelMessage message) { answered.set_value(std::move(message)); });
    callee.define("f", [&](Remote&, const RemoteValue&) -> RemoteValue {
      if (throws) throw UsageError("not today");
      return RemoteValue::List{1, "text"};
    });
    Remote first(settings, [&](JobRank, ChannelMessage message) { callee.deliver(JobRank(0), std::move(message)); });
    (void)first.rpcAsync("b", "f");
    const std::string whole = answered.get_future().get().head;
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      Remote caller(settings, [](JobRank, const ChannelMessage&) {});
      const RemoteFuture future = caller.rpcAsync("b", "f");
      caller.deliver(JobRank(1), {whole.substr(0, size), {}});
      EXPECT_TRUE(future.isDone()) << size << " of " << whole.size() << " bytes";
      EXPECT_EQ(caller.isLost(JobRank(1)), size < whole.size());
      EXPECT_EQ(caller.counts().calls, 0U);
    }
  }
}

}  // namespace
}  // namespace pw::test
