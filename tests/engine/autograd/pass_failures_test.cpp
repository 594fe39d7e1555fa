#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>

#include "engine/autograd/pass_message.h"
#include "tests/engine/autograd/programs.h"

namespace pw::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

JobOptions options(int workers) {
  JobOptions options;
  options.workers = workers;
  options.functions = &testFunctions();
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

bool isStep(const MessageView& view, PassStep step) { return view.kind == MessageKind::Autograd && view.first == static_cast<int>(step); }

struct Dropped {
  const char* name;
  PassStep step;
  int from, to;
  BackwardMode mode;
  const char* program;
};

class DroppedStep : public testing::TestWithParam<Dropped> {};

// One message of that kind between two workers gets lost: the pass ends at its deadline, and says who did not get what.
TEST_P(DroppedStep, EndsThePassAtItsDeadlineNamingTheWorkers) {
  const Dropped dropped = GetParam();
  JobOptions lossy = options(3);
  std::atomic<bool> isGone = false;
  lossy.drops = [&](const MessageView& view) {
    return isStep(view, dropped.step) && view.from.value == dropped.from && view.to.value == dropped.to && !isGone.exchange(true);
  };
  lossy.deadline = 800ms;
  const Program program = programs().at(dropped.program);
  Parameters parameters;
  RemoteJob job(lossy);
  define(job, program, parameters);
  job.start();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(messageOf([&] { (void)runOverWorkers(job, program, parameters, dropped.mode); }),
              AllOf(HasSubstr("within 0.8 s"), HasSubstr("worker" + std::to_string(dropped.to) + " did not get 1 of the"),
                    HasSubstr("that worker" + std::to_string(dropped.from) + " sent")));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 800ms);
  EXPECT_TRUE(isGone) << "no such message was sent";
  expectNothingLeft(job);
}

const Dropped kDropped[] = {
    {"FirstGradient", PassStep::Gradient, 0, 1, BackwardMode::Fast, "NestedCalls"},
    {"GradientFurtherAway", PassStep::Gradient, 1, 2, BackwardMode::Fast, "NestedCalls"},
    {"GradientOnTheWayBack", PassStep::Gradient, 2, 1, BackwardMode::Fast, "NestedCalls"},
    {"LastGradient", PassStep::Gradient, 1, 0, BackwardMode::Fast, "NestedCalls"},
    {"FirstOfTheWave", PassStep::Reach, 0, 1, BackwardMode::Smart, "NestedCalls"},
    {"WaveFurtherAway", PassStep::Reach, 1, 2, BackwardMode::Smart, "NestedCalls"},
    {"IdleOfTheFirst", PassStep::Idle, 1, 0, BackwardMode::Fast, "NestedCalls"},
    {"IdleOfTheSecond", PassStep::Idle, 2, 0, BackwardMode::Smart, "NestedCalls"},
    {"LateWave", PassStep::Reach, 0, 1, BackwardMode::Auto, "UnusedProductOfTheNote"},
    {"Resume", PassStep::Resume, 0, 1, BackwardMode::Auto, "UnusedOnTheCallee"},
};
INSTANTIATE_TEST_SUITE_P(Steps, DroppedStep, testing::ValuesIn(kDropped), [](const auto& test) { return std::string(test.param.name); });

TEST(Pass, NamesTheWorkerThatDoesNotAnswerAnyMore) {
  JobOptions soon = options(3);
  soon.deadline = 400ms;
  RemoteJob job(soon);
  const Program program = programs().at("NestedCalls");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  Here here = hereOn(job.remote(0), parameters);
  const OpenContext context(job.autograd(0));
  const Tensor loss = program.main(here);
  job.freeze(2);
  EXPECT_THAT(messageOf([&] { job.autograd(0).backward(context.id(), {loss.handle}); }),
              AllOf(HasSubstr("worker2 did not answer"), HasSubstr("0.4 s")));
}

// Worker 2 dies while worker 1 waits for it: only worker 1 is told, and tells worker 0.
TEST(Pass, EndsAtOnceWhenAWorkerIsLost) {
  JobOptions lossy = options(3);
  std::latch reached(1);
  lossy.drops = [&](const MessageView& view) {
    if (!isStep(view, PassStep::Gradient) || view.to != JobRank(2)) return false;
    reached.count_down();
    return true;
  };
  RemoteJob job(lossy);
  const Program program = programs().at("NestedCalls");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  std::thread killer([&] {
    reached.wait();
    job.freeze(2);
    job.remote(1).lost(JobRank(2), "its process ended");
  });
  EXPECT_THAT(messageOf([&] { (void)runOverWorkers(job, program, parameters, BackwardMode::Auto); }),
              AllOf(HasSubstr("worker2 was lost"), HasSubstr("its process ended")));
  killer.join();
}

TEST(Pass, EndsAtOnceWhenItsOwnWorkerEnds) {
  JobOptions lossy = options(3);
  std::latch reached(1);
  lossy.drops = [&](const MessageView& view) {
    if (!isStep(view, PassStep::Gradient) || view.to != JobRank(2)) return false;
    reached.count_down();
    return true;
  };
  RemoteJob job(lossy);
  const Program program = programs().at("NestedCalls");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  Here here = hereOn(job.remote(0), parameters);
  const OpenContext context(job.autograd(0));
  const Tensor loss = program.main(here);
  std::thread closer([&] {
    reached.wait();
    job.remote(0).close();
  });
  EXPECT_THAT(messageOf([&] { job.autograd(0).backward(context.id(), {loss.handle}); }), HasSubstr("This worker has ended"));
  closer.join();
  EXPECT_THAT(messageOf([&] { job.autograd(0).backward(context.id(), {loss.handle}); }), HasSubstr("This worker has ended"));
  EXPECT_EQ(job.autograd(0).counts().passes, 0U);
}

TEST(Pass, EndsAtOnceWhenAWorkerWasLostBefore) {
  RemoteJob job(options(3));
  const Program program = programs().at("NestedCalls");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  Here here = hereOn(job.remote(0), parameters);
  const OpenContext context(job.autograd(0));
  const Tensor loss = program.main(here);
  job.kill(2);
  EXPECT_THAT(messageOf([&] { job.autograd(0).backward(context.id(), {loss.handle}); }), HasSubstr("worker2 was lost"));
}

TEST(Pass, ReleasesContextsWhoseMakerIsLost) {
  JobOptions untold = options(3);  // each hears of it by `kill`, which then has done it
  untold.drops = [](const MessageView& view) { return view.kind == MessageKind::Lost; };
  RemoteJob job(untold);
  const Program program = programs().at("NestedCalls");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  Here here = hereOn(job.remote(0), parameters);
  const OpenContext context(job.autograd(0));
  (void)program.main(here);
  EXPECT_EQ(job.autograd(1).counts().contexts, 1U);
  EXPECT_EQ(job.autograd(2).counts().contexts, 1U);
  job.kill(0);
  EXPECT_EQ(job.autograd(1).counts(), AutogradCounts{});
  EXPECT_EQ(job.autograd(2).counts(), AutogradCounts{});
}

// Worker 1 does not know yet that worker 2 is lost, and calls in a context of that.
TEST(Contexts, AreNotMadeAnewWhereTheirMakerIsLost) {
  JobOptions untold = options(3);
  untold.drops = [](const MessageView& view) { return view.kind == MessageKind::Lost; };
  RemoteJob job(untold);
  job.defineEverywhere("echo", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  const OpenContext context(job.autograd(2));
  EXPECT_EQ(job.remote(2).rpcSync("worker1", "echo", 1).integer(), 1);
  job.remote(0).lost(JobRank(2), "its process ended");
  {
    const WithContext within(context.id());
    EXPECT_EQ(job.remote(1).rpcSync("worker0", "echo", 2).integer(), 2);
  }
  EXPECT_EQ(job.autograd(1).counts().contexts, 1U);
  EXPECT_EQ(job.autograd(0).counts().contexts, 0U);
}

TEST(Contexts, OfWorkersThatAreNotThereAreRefused) {
  const RemoteSettings settings{JobRank(0), {"a"}, 99, 20000ms, 2, 8, nullptr};
  std::vector<ChannelMessage> sent;
  Remote remote(settings, [&](JobRank, ChannelMessage message) { sent.push_back(std::move(message)); });
  (void)remote.rpcAsync("a", "f");
  sent.at(0).head.at(33) = 1;  // after token, number, kind, id and type: the last byte of the context's id
  remote.deliver(JobRank(0), std::move(sent[0]));
  EXPECT_TRUE(remote.isLost(JobRank(0)));
}

TEST(Pass, BringsWhatAFunctionThrowsOnAnotherWorker) {
  RemoteJob job(options(3));
  job.defineEverywhere("broken", [](Remote& here, const RemoteValue& a) -> RemoteValue {
    if (here.settings().self == JobRank(1)) return here.rpcSync("worker2", "broken", a);
    return valueOf(brokenBackward(tensorOf(a.at(0))));
  });
  job.start();
  for (const BackwardMode mode : {BackwardMode::Fast, BackwardMode::Smart, BackwardMode::Auto}) {
    const OpenContext context(job.autograd(0));
    const Tensor loss = sum(tensorOf(job.remote(0).rpcSync("worker1", "broken", RemoteValue::List{valueOf(leaf(1))})));
    try {
      job.autograd(0).backward(context.id(), {loss.handle}, {.mode = mode, .keepGraph = false, .deadline = {}});
      FAIL();
    } catch (const RemoteError& problem) {
      EXPECT_EQ(problem.type(), "std::domain_error");
      EXPECT_THAT(problem.text(), HasSubstr("this backward is broken"));
      EXPECT_EQ(problem.worker(), "worker2");
    }
  }
  expectNothingLeft(job);
}

TEST(Pass, NamesTheWorkerWhosePieceFailedWhereTheTextDoesNot) {
  const auto ended = [](int worker, const std::string& text) {
    RemoteJob job(options(2));
    AutogradWatch watch;
    watch.piece = [&](ContextId, AutogradMessageId, const std::function<void()>&) { throw Error(text); };
    job.autograd(worker).watch(watch);
    job.defineEverywhere("twice", [](Remote&, const RemoteValue& a) { return valueOf(tensorOf(a) + tensorOf(a)); });
    job.start();
    const OpenContext context(job.autograd(0));
    const Tensor loss = sum(tensorOf(job.remote(0).rpcSync("worker1", "twice", valueOf(leaf(1)))));
    return messageOf([&] { job.autograd(0).backward(context.id(), {loss.handle}); });
  };
  EXPECT_EQ(ended(1, "the disk is full"), "the disk is full (on worker1)");
  EXPECT_EQ(ended(1, "worker1 has no disk"), "worker1 has no disk");
  EXPECT_EQ(ended(1, "worker12 has no disk"), "worker12 has no disk (on worker1)");
  EXPECT_EQ(ended(0, "the disk is full"), "the disk is full") << "it is the caller's own";
}

TEST(Contexts, AreEndedByTheirMakerOnly) {
  RemoteJob job(options(2));
  const OpenContext context(job.autograd(0));
  PassMessage release;
  release.step = PassStep::Release;
  release.context = context.id();
  std::vector<HeldBuffer> parts;
  job.remote(1).sendAutograd(JobRank(0), writeMessage(release, testFunctions(), parts));
  job.start();
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!job.remote(0).isLost(JobRank(1)) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(job.remote(0).isLost(JobRank(1)));
  EXPECT_EQ(job.autograd(0).counts().contexts, 1U);
  {
    const OpenContext early(job.autograd(0));
    job.autograd(0).release(early.id());
  }
  EXPECT_EQ(job.autograd(0).counts().contexts, 1U);
}

// A tensor comes to a worker without LibTorch: its caller hears of it, and the worker keeps running.
TEST(Calls, ThatTheCalleeCannotReadEndWithItsProblem) {
  RemoteSettings settings{JobRank(0), {"a", "b"}, 99, 20000ms, 2, 8, &testFunctions()}, without = settings;
  without.self = JobRank(1);
  without.functions = nullptr;
  std::vector<ChannelMessage> toCallee, toCaller;
  Remote caller(settings, [&](JobRank, ChannelMessage message) { toCallee.push_back(std::move(message)); });
  Remote callee(without, [&](JobRank, ChannelMessage message) { toCaller.push_back(std::move(message)); });
  const RemoteFuture result = caller.rpcAsync("b", "f", valueOf(constant(1)));
  const Reference kept = caller.remote("b", "f", valueOf(constant(1)));
  const RemoteFuture fetched = caller.toHereAsync(kept);
  for (ChannelMessage& message : toCallee) callee.deliver(JobRank(0), std::move(message));
  EXPECT_FALSE(callee.isLost(JobRank(0)));
  ASSERT_EQ(toCaller.size(), 3U);
  for (ChannelMessage& message : toCaller) caller.deliver(JobRank(1), std::move(message));
  for (const RemoteFuture& future : {result, fetched})
    EXPECT_THAT(messageOf([&] { (void)future.wait(); }), AllOf(HasSubstr("need LibTorch"), HasSubstr("on b")));
  EXPECT_EQ(callee.counts().executing, 0U);
}

TEST(Pass, RefusesRootsThatItCannotUse) {
  RemoteJob job(options(1));
  job.start();
  const OpenContext context(job.autograd(0));
  DistributedAutograd& autograd = job.autograd(0);
  EXPECT_THAT(messageOf([&] { autograd.backward(context.id(), {}); }), HasSubstr("needs a root"));
  EXPECT_THAT(messageOf([&] { autograd.backward(context.id(), {leaf(1).handle}); }), HasSubstr("has 9 elements"));
  EXPECT_THAT(messageOf([&] { autograd.backward(context.id(), {sum(constant(1)).handle}); }), HasSubstr("needs no gradient"));
  EXPECT_THAT(messageOf([&] { autograd.backward(ContextId(77), {sum(leaf(1)).handle}); }), HasSubstr("context 77 is not open"));
  EXPECT_THAT(messageOf([&] { autograd.release(ContextId(77)); }), HasSubstr("context 77 is not open"));
  EXPECT_THAT(messageOf([&] { autograd.release(ContextId(3ULL << 48U)); }), HasSubstr("made by another worker"));
}

TEST(Pass, RefusesTensorsOfAnotherContext) {
  RemoteJob job(options(2));
  const Program program = programs().at("OneCall");
  Parameters parameters;
  define(job, program, parameters);
  job.start();
  Here here = hereOn(job.remote(0), parameters);
  const OpenContext one(job.autograd(0));
  const Tensor loss = program.main(here);
  const OpenContext other(job.autograd(0));
  EXPECT_THAT(messageOf([&] { job.autograd(0).backward(other.id(), {loss.handle}); }), HasSubstr("in another autograd context"));
}

}  // namespace
}  // namespace pw::test
