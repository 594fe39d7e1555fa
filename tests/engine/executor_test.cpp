// The executor on stages of numbers: no tensors, ranks as threads (tests/support/number_stage.h).
#include "engine/executor.h"
#include "backends/messages/in_memory_communicator.h"
#include "engine/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/schedules/random_schedules.h"
#include "tests/support/number_stage.h"
#include "tests/support/watched_communicator.h"

namespace pw {
namespace {

using test::chainPlan;
using test::NumberJob;
using test::NumberStage;
using test::Skip;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kF = ActionKind::Forward, kB = ActionKind::Backward, kI = ActionKind::BackwardInput, kW = ActionKind::BackwardWeight;
constexpr auto kSendF = ActionKind::SendForward, kSendB = ActionKind::SendBackward, kRecvF = ActionKind::RecvForward,
               kRecvB = ActionKind::RecvBackward;

Action act(int stage, ActionKind kind, int microbatch) { return {Stage(stage), kind, Microbatch(microbatch)}; }

Schedule scheduleOf(std::vector<Rank> rankOfStage, int microbatches, std::vector<std::vector<Action>> rows) {
  Schedule schedule{"by hand", microbatches, {std::move(rankOfStage)}, std::move(rows)};
  return schedule;
}

/// A skip over one stage, one over all that carries no gradient, and the first stage's value to all that follow.
std::vector<Skip> skipsOf(int stages) {
  std::vector<Skip> skips{{0, stages - 1, false}};
  for (int s = 2; s < stages; ++s) skips.push_back({s - 2, s, true});
  return skips;
}

/// Loss, gradients, updates and the way every value took.
void expectRight(const Plan& plan, const NumberJob& job) {
  ASSERT_EQ(job.firstError(), "");
  const test::Expected expected = test::expectedOf(plan);
  const bool training = std::ranges::any_of(plan.schedule.rows[0], [](const Action& a) { return a.kind == kB || a.kind == kI; });
  double loss = 0;
  for (std::size_t r = 0; r < job.stages.size(); ++r) {
    loss += job.logs[r].loss.value_or(0);
    for (const auto& [s, stage] : job.stages[r]) {
      const double gradient = training ? expected.gradients[s.index()] : 0;
      for (std::size_t i = 0; i < NumberStage::kElements; ++i)
        EXPECT_EQ(stage->values(0)[i], 1 - 0.5 * gradient * static_cast<double>(i + 1)) << "stage " << s.value;
      ASSERT_EQ(stage->ranges.size(), 1U);
      for (const auto& [slot, memory] : stage->given) {
        const Transfer& t = plan.partition.transfers[slot.first];
        const Stage other = t.from == s ? t.to : t.from;
        const bool local = plan.schedule.placement.rankOf(other, slot.second).index() == r % plan.schedule.rows.size();
        if (local) {
          EXPECT_EQ(memory, job.stages[r].at(other)->taken.at(slot)) << "a copy between stages " << t.from.value << " and " << t.to.value;
        }
        EXPECT_EQ(stage->allocated.contains(slot), !local);
      }
    }
  }
  EXPECT_EQ(loss, expected.loss);
}

/// Most microbatches a stage has in flight (F to B, or W), and between I and W, by the row alone.
std::pair<int, int> mostOf(const Plan& plan, Rank rank, Stage stage) {
  int live = 0, waiting = 0, mostLive = 0, mostWaiting = 0;
  for (const Action& a : plan.schedule.rows[rank.index()]) {
    if (a.stage != stage || !isCompute(a.kind)) continue;
    live += a.kind == kF ? 1 : a.kind == kB || a.kind == kW ? -1 : 0;
    waiting += a.kind == kI ? 1 : a.kind == kW ? -1 : 0;
    mostLive = std::max(mostLive, live);
    mostWaiting = std::max(mostWaiting, waiting);
  }
  return {mostLive, mostWaiting};
}

void expectNoMoreInFlight(const Plan& plan, const NumberJob& job) {
  ASSERT_FALSE(job.stages.empty());
  for (std::size_t r = 0; r < job.stages.size(); ++r) {
    for (const auto& [s, stage] : job.stages[r]) {
      const auto [live, waiting] = mostOf(plan, Rank(r % plan.schedule.rows.size()), s);
      EXPECT_LE(stage->mostLive, live) << "stage " << s.value << " on rank " << r;
      EXPECT_LE(stage->mostWaiting, waiting) << "stage " << s.value << " on rank " << r;
    }
  }
}

/// One step in ready order, messages seen at random.
NumberJob readyStep(const Plan& plan, std::uint64_t seed, int delay, int slowRank = -1) {
  NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
  std::vector<std::mt19937_64> randoms;
  for (std::size_t r = 0; r < communicators.size(); ++r) randoms.emplace_back(seed * 64 + r);
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    test::Watch watch;
    watch.random = &randoms[r];
    watch.delay = static_cast<int>(r) == slowRank ? 0 : delay;
    communicators[r] = std::make_unique<test::WatchedCommunicator>(std::move(communicators[r]), watch);
  }
  ExecutorOptions options;
  options.order = Order::Ready;
  test::runJob(job, plan, communicators, options, [](Executor& executor, std::size_t) { return executor.step(0, {}); });
  return job;
}

/// All families in shapes that they allow, with skips.
template <class Check>
void forAllFamilies(Check check) {
  for (const Generator& generator : generators()) {
    int checked = 0;
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int microbatches : {4, 8}) {
        const Shape shape{ranks, ranks * generator.chunks, microbatches};
        if (generator.refusal && generator.refusal(shape)) continue;
        SCOPED_TRACE(std::string(generator.name) + ", R = " + std::to_string(ranks) + ", M = " + std::to_string(microbatches));
        check(chainPlan(lower(generate(generator.name, shape)), skipsOf(shape.stages)));
        ++checked;
      }
    }
    EXPECT_GT(checked, 0) << generator.name << " allows none of these shapes";
  }
}

TEST(Executor, EveryFamilyComputesAChainWithSkipsAndHandsOverWithoutACopy) {
  forAllFamilies([](const Plan& plan) { expectRight(plan, test::stepOf(plan)); });
}

TEST(Executor, EveryFamilyInReadyOrderGivesTheSameAndHoldsNoMoreThanItsRow) {
  std::uint64_t seed = 0;
  forAllFamilies([&](const Plan& plan) {
    for (const int delay : {0, 3}) {
      ++seed;
      const NumberJob job = readyStep(plan, seed, delay, static_cast<int>(seed % plan.schedule.rows.size()));
      expectRight(plan, job);
      expectNoMoreInFlight(plan, job);
    }
  });
}

TEST(Executor, ReplicasOfEveryFamilySumTheirGradients) {
  for (const Generator& generator : generators()) {
    const Shape shape{2, 2 * generator.chunks, 4};
    ASSERT_FALSE(generator.refusal && generator.refusal(shape)) << generator.name << ": " << *generator.refusal(shape);
    SCOPED_TRACE(std::string(generator.name));
    const Plan plan = chainPlan(withReductions(lower(generate(generator.name, shape))), skipsOf(shape.stages), 2);
    expectRight(plan, test::stepOf(plan));
    expectRight(plan, readyStep(plan, 5, 3));
  }
}

TEST(Executor, RandomSchedulesRunInEitherOrder) {
  constexpr std::uint64_t kFirst = 100;
  RecordProperty("first seed", static_cast<int>(kFirst));
  for (std::uint64_t seed = kFirst; seed < kFirst + 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Random random(seed);
    Schedule compute = computeOnly(test::Grower(random, {}).grow());
    std::vector<Skip> skips;
    const int stages = static_cast<int>(compute.placement.stages());
    for (int k = test::below(random, 4); k > 0; --k)
      skips.push_back({test::below(random, stages), test::below(random, stages), test::oneOf(random, 2)});
    Plan plan = chainPlan(lower(compute), skips);
    if (test::oneOf(random, 3)) plan.schedule = withReductions(plan.schedule);
    if (test::oneOf(random, 2)) expectRight(plan, test::stepOf(plan));
    const NumberJob job = readyStep(plan, seed, test::below(random, 4), test::below(random, 5));
    expectRight(plan, job);
    expectNoMoreInFlight(plan, job);
    if (HasFailure()) return;
  }
}

TEST(Executor, ReadyOrderCountsWholeBackwardsAsTheEndOfAMicrobatch) {
  // One microbatch at a time on either stage, two by B and one by I and W: F must wait for B although the stage has W actions.
  std::vector<std::vector<Action>> rows(2);
  for (int s = 0; s < 2; ++s)
    rows[static_cast<std::size_t>(s)] = {act(s, kF, 0), act(s, kB, 0), act(s, kF, 1), act(s, kB, 1),
                                         act(s, kF, 2), act(s, kI, 2), act(s, kW, 2)};
  const Plan plan = chainPlan(lower(scheduleOf({Rank(0), Rank(1)}, 3, rows)));
  const NumberJob job = readyStep(plan, 1, 0, 0);
  expectRight(plan, job);
  expectNoMoreInFlight(plan, job);
}

TEST(Executor, ReadyOrderTakesWhatHasComeAndKeepsEachKindInItsOrder) {
  // Rank 1 holds stages 1 and 2 of three; rank 0 alone decides what comes first. By its row rank 1 does all of stage 1 before stage 2.
  std::vector<std::vector<Action>> rows(2);
  for (int m = 0; m < 3; ++m) rows[0].push_back(act(0, kF, m));
  for (int m = 0; m < 3; ++m) rows[0].push_back(act(0, kB, m));
  for (const int s : {1, 2}) {
    for (int m = 0; m < 3; ++m) rows[1].push_back(act(s, kF, m));
  }
  for (const int s : {2, 1}) {
    for (int m = 0; m < 3; ++m) rows[1].push_back(act(s, kB, m));
  }
  const Plan plan = chainPlan(lower(scheduleOf({Rank(0), Rank(1), Rank(1)}, 3, rows)));
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const NumberJob job = readyStep(plan, seed, 2);
    expectRight(plan, job);
    ASSERT_EQ(job.stages[1].size(), 2U);
    for (const auto& [s, stage] : job.stages[1]) {
      std::vector<std::string> forwards, backwards;
      for (const std::string& a : stage->done) (a[0] == 'F' ? forwards : backwards).push_back(a);
      EXPECT_THAT(forwards, ElementsAre("F0", "F1", "F2"));
      EXPECT_THAT(backwards, ElementsAre("B0", "B1", "B2"));
    }
  }
}

TEST(Executor, ReadyOrderIsRefusedWhereTheTransportCannotTell) {
  const Plan plan = chainPlan(lower(generate("1f1b", {2, 2, 2})));
  NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
  test::Watch watch;
  watch.cannotTell = true;
  for (auto& communicator : communicators) communicator = std::make_unique<test::WatchedCommunicator>(std::move(communicator), watch);
  ExecutorOptions options;
  options.order = Order::Ready;
  test::runJob(job, plan, communicators, options, [&](Executor& executor, std::size_t) { return executor.step(0, {}); });
  EXPECT_TRUE(std::ranges::count(job.errors, "cannot tell which message has come") > 0) << job.firstError();
}

TEST(Executor, ComputesInTheOrderOfItsRow) {
  const NumberJob job = test::stepOf(chainPlan(lower(generate("1f1b", {2, 2, 3}))));
  EXPECT_THAT(job.stages[0].at(Stage(0))->done, ElementsAre("F0", "F1", "B0", "F2", "B1", "B2"));
  EXPECT_THAT(job.stages[1].at(Stage(1))->done, ElementsAre("F0", "B0", "F1", "B1", "F2", "B2"));
}

TEST(Executor, EvaluatesForwardsAlone) {
  for (const char* name : {"gpipe", "1f1b", "zbv", "chimera"}) {
    const Generator& generator = generatorOf(name);
    const Plan plan = chainPlan(lower(generate(name, {2, 2 * generator.chunks, 4})), skipsOf(2 * generator.chunks));
    NumberJob job = test::prepareJob(plan);
    auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
    ExecutorOptions options;
    options.sumLoss = true;
    test::runJob(job, plan, communicators, options, [&](Executor& executor, std::size_t r) {
      static_cast<void>(executor.step(0, {}));
      StepLog log = executor.evaluate(1);
      std::ptrdiff_t done = 0;
      for (const auto& [s, stage] : job.stages[r]) {
        done += std::ssize(stage->done);
        for (const std::string& action : stage->done) EXPECT_EQ(action[0], 'F');
        EXPECT_TRUE(stage->ranges.empty()) << "no optimizer in an evaluation";
      }
      EXPECT_EQ(done, std::ranges::count(plan.schedule.rows[r], ActionKind::Forward, &Action::kind)) << name;
      static_cast<void>(executor.step(2, {}));
      return log;
    });
    ASSERT_EQ(job.firstError(), "") << name;
    for (const StepLog& log : job.logs) EXPECT_EQ(log.loss, test::expectedOf(plan).loss) << "every rank knows the whole loss";
  }
}

TEST(Executor, AFailureNamesRankStepAndActionAndEndsThePeers) {
  const Plan plan = chainPlan(lower(generate("zb-h1", {2, 2, 4})));
  for (const char* failing : {"F2", "I1", "W0"}) {
    NumberJob job = test::prepareJob(plan);
    job.stages[1].at(Stage(1))->failAt = failing;
    auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
    test::runJob(job, plan, communicators, {}, [](Executor& executor, std::size_t) { return executor.step(3, {}); });
    EXPECT_THAT(job.errors[1], AllOf(HasSubstr("Rank 1 failed in step 3, action 1" + std::string(failing)), HasSubstr("out of memory")));
    EXPECT_FALSE(job.errors[0].empty());
  }
}

TEST(Executor, ALostPeerIsNamedWithTheActionThatWaitsForIt) {
  const Plan plan = chainPlan(lower(generate("gpipe", {2, 2, 2})));
  NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(2, std::chrono::milliseconds(50));
  test::runJob(job, plan, communicators, {}, [&](Executor& executor, std::size_t r) {
    if (r == 1) {  // stays away after the barrier
      auto& communicator = *communicators[1];
      communicator.barrier();
      return StepLog{};
    }
    return executor.step(0, {});
  });
  EXPECT_THAT(job.errors[0], AllOf(HasSubstr("Rank 0 failed in step 0, action 0B0"), HasSubstr("rank 1")));
}

TEST(Executor, NoTagIsUsedTwiceBetweenBarriersAndLockstepHasABarrierAfterEveryCycle) {
  forAllFamilies([](Plan plan) {
    plan.partition.shared.push_back(
        {"w", "w", {Stage(0), Stage(plan.partition.stages.size() - 1)}, Bytes(sizeof(double)), Sharing::Transmit});
    if (plan.partition.stages.size() == 1) plan.partition.shared.clear();
    NumberJob job = test::prepareJob(plan);
    auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
    std::vector<test::WatchedCommunicator*> watched;
    for (auto& communicator : communicators) {
      auto wrapper = std::make_unique<test::WatchedCommunicator>(std::move(communicator), test::Watch{});
      watched.push_back(wrapper.get());
      communicator = std::move(wrapper);
    }
    ExecutorOptions options;
    options.clipNorm = 1;
    options.sumLoss = true;
    options.shardOptimizer = true;
    test::runJob(job, plan, communicators, options, [](Executor& executor, std::size_t) { return executor.step(0, {}); });
    ASSERT_EQ(job.firstError(), "");
    const int ranks = static_cast<int>(plan.schedule.rows.size());
    for (const auto* communicator : watched) {
      EXPECT_EQ(communicator->repeatedTags, 0);
      EXPECT_EQ(communicator->barriers, 1 + (plan.schedule.lockstep ? plan.schedule.microbatches + 2 * ranks - 2 : 0));
    }
  });
}

TEST(Executor, SendsWhereTheRowSaysAndReceivesBeforeTheActionBefore) {
  // Rank 0 computes both forwards, then sends both. Tags: (transfer · M + microbatch) · 2 + direction + 1.
  const Plan plan = chainPlan(scheduleOf({Rank(0), Rank(1)}, 2,
                                         {{act(0, kF, 0), act(0, kF, 1), act(0, kSendF, 0), act(0, kSendF, 1), act(0, kRecvB, 0),
                                           act(0, kB, 0), act(0, kRecvB, 1), act(0, kB, 1)},
                                          {act(1, kRecvF, 0), act(1, kF, 0), act(1, kRecvF, 1), act(1, kF, 1), act(1, kB, 0),
                                           act(1, kSendB, 0), act(1, kB, 1), act(1, kSendB, 1)}}));
  NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
  std::vector<std::vector<std::string>> logs(2);
  for (std::size_t r = 0; r < 2; ++r) {
    test::Watch watch;
    watch.log = &logs[r];
    communicators[r] = std::make_unique<test::WatchedCommunicator>(std::move(communicators[r]), watch);
    job.stages[r].at(Stage(r))->log = &logs[r];
  }
  ExecutorOptions options;
  options.checkFinite = false;  // no message about it
  test::runJob(job, plan, communicators, options, [](Executor& executor, std::size_t) { return executor.step(0, {}); });
  expectRight(plan, job);
  // RECV_B0 stands after F1, so it is posted before F1; RECV_B1 after B0, so before B0.
  EXPECT_THAT(logs[0], ElementsAre("barrier", "0F0", "receive 1:2", "0F1", "send 1:1", "send 1:3", "receive 1:4", "0B0", "0B1"));
  EXPECT_THAT(logs[1], ElementsAre("barrier", "receive 0:1", "receive 0:3", "1F0", "1F1", "1B0", "send 0:2", "1B1", "send 0:4"));
}

TEST(OpsOf, APlanWithASkipOverStagesOfOneRankIsAsDerivedByHand) {
  // Stages 0 and 3 on rank 0, 1 and 2 on rank 1; a value goes from stage 0 to stage 2 beside the chain: no SEND or RECV names it.
  const Plan plan = chainPlan(scheduleOf({Rank(0), Rank(1), Rank(1), Rank(0)}, 1,
                                         {{act(0, kF, 0), act(0, kSendF, 0), act(3, kRecvF, 0), act(3, kF, 0), act(3, kB, 0),
                                           act(3, kSendB, 0), act(0, kRecvB, 0), act(0, kB, 0)},
                                          {act(1, kRecvF, 0), act(1, kF, 0), act(2, kF, 0), act(2, kSendF, 0), act(2, kRecvB, 0),
                                           act(2, kB, 0), act(1, kB, 0), act(1, kSendB, 0)}}),
                              {{0, 2, true}});
  const std::map<Stage, StageModule*> none;
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(1));
  FlightRecord flights;
  const auto ops = [&](int rank, bool evaluation) {
    return opsOf(plan, Rank(rank), Exchange(plan, none, *communicators[static_cast<std::size_t>(rank)], flights), evaluation);
  };
  const auto post = [](const Action& a) { return Op{Op::Kind::Post, a}; };
  const auto compute = [](const Action& a) { return Op{Op::Kind::Compute, a}; };
  const auto send = [](const Action& a) { return Op{Op::Kind::Send, a}; };
  const Action f0 = act(0, kF, 0), f1 = act(1, kF, 0), f2 = act(2, kF, 0), f3 = act(3, kF, 0);
  const Action b0 = act(0, kB, 0), b1 = act(1, kB, 0), b2 = act(2, kB, 0), b3 = act(3, kB, 0);
  EXPECT_THAT(ops(0, false), ElementsAre(post(f3), compute(f0), send(f0), compute(f3), post(b0), compute(b3), send(b3), compute(b0)));
  // Stage 2 takes stage 0's value without a RECV: before the compute action before it. Its gradient goes back without a SEND: at once.
  EXPECT_THAT(ops(1, false),
              ElementsAre(post(f1), post(f2), compute(f1), post(b2), compute(f2), send(f2), compute(b2), send(b2), compute(b1), send(b1)));
  EXPECT_THAT(ops(0, true), ElementsAre(post(f3), compute(f0), send(f0), compute(f3)));
  EXPECT_THAT(ops(1, true), ElementsAre(post(f1), post(f2), compute(f1), compute(f2), send(f2)));
}

TEST(OpsOf, AReductionStandsWhereTheRowHasIt) {
  Plan plan = chainPlan(withReductions(lower(generate("gpipe", {2, 2, 1}))), {}, 2);
  const std::map<Stage, StageModule*> none;
  auto communicators = inMemoryCommunicators(4, std::chrono::seconds(1));
  FlightRecord flights;
  const auto ops = opsOf(plan, Rank(1), Exchange(plan, none, *communicators[1], flights), false);
  ASSERT_GE(ops.size(), 2U);
  EXPECT_EQ(ops[ops.size() - 2].kind, Op::Kind::Send) << "after the send, so that the stage before does not wait";
  EXPECT_EQ(ops.back().kind, Op::Kind::Reduce);
  EXPECT_EQ(ops.back().action.stage, Stage(1));
}

TEST(JoinTraces, AMessageStartsAtItsSenderAndEndsAtItsReceiver) {
  const NumberJob job = test::stepOf(chainPlan(lower(generate("1f1b", {2, 2, 3}))));
  const Trace trace = joinTraces(job.logs, 2);
  EXPECT_EQ(trace.ranks, 2);
  int forward = 0, backward = 0, compute = 0;
  for (const Span& span : trace.spans) {
    EXPECT_LE(span.start, span.end);
    compute += isCompute(span.kind) ? 1 : 0;
    if (span.kind != SpanKind::SendForward && span.kind != SpanKind::SendBackward) continue;
    const bool isForward = span.kind == SpanKind::SendForward;
    (isForward ? forward : backward) += 1;
    EXPECT_EQ(span.rank, Rank(isForward ? 0 : 1));
    EXPECT_EQ(span.peer, Rank(isForward ? 1 : 0));
    EXPECT_EQ(span.bytes, static_cast<Bytes>(sizeof(double)));
  }
  EXPECT_EQ(forward, 3);
  EXPECT_EQ(backward, 3);
  EXPECT_EQ(compute, 12);
  EXPECT_EQ(trace.spans.front().start, 0);
}

}  // namespace
}  // namespace pw
