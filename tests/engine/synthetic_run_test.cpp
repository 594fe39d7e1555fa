// Plans run on synthetic stages, ranks as threads: what is known of such a run beforehand, whatever the machine. Durations have lower
// bounds only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "backends/messages/in_memory_communicator.h"
#include "backends/stages/synthetic_stage.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/support/number_stage.h"
#include "tests/support/trace_rules.h"
#include "tests/support/watched_communicator.h"

namespace pw {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Bytes kMessage = 1'000, kActivations = 1'000'000;
constexpr Ns kOptimizer = 50'000;

/// A chain of stages with different times for each, a value that skips over all, and memory that tells what holds it.
Plan planOf(const std::string& name, int ranks, int microbatches, int replicas = 1) {
  const int stages = ranks * generatorOf(name).chunks;
  Schedule schedule = lower(generate(name, {ranks, stages, microbatches}));
  if (replicas > 1 || schedule.placement.bidirectional()) schedule = withReductions(schedule);
  Plan plan = test::chainPlan(std::move(schedule), {{0, stages - 1, true}}, replicas);
  plan.costs = syntheticTable(
      {.forward = {100'000}, .backward = {}, .backwardInput = {150'000}, .backwardWeight = {120'000}, .overlap = {}}, stages);
  for (Transfer& t : plan.partition.transfers) t.bytes = kMessage;
  for (std::size_t s = 0; s < plan.costs.stages.size(); ++s) {
    StageCost& cost = plan.costs.stages[s];
    cost.forward += s * Ns{10'000};
    cost.optimizer = kOptimizer;
    cost.parameterBytes = cost.gradientBytes = cost.updatedBytes = 4'000 + s * Bytes{400};
    cost.activationBytes = kActivations * (s + 1);
    cost.freedByInput = kActivations / 4;
    cost.backwardPeak = cost.inputPeak = kActivations / 2;
  }
  plan.costs.microbatchScale.assign(static_cast<std::size_t>(microbatches), 1);
  plan.costs.microbatchScale.back() = 0.5;
  return plan;
}

/// All ranks of a plan as threads, each with its synthetic stages.
struct Rehearsal {
  std::vector<std::map<Stage, std::unique_ptr<StageModule>>> stages;  ///< by rank
  std::vector<std::vector<StepLog>> logs;                             ///< by step and rank
  std::vector<std::string> errors;                                    ///< by rank, of those that failed
};

using Change = std::function<void(std::uint32_t tag, Buffer)>;

/// `change` sees every message that was received.
Rehearsal rehearse(const Plan& plan, int steps, const ExecutorOptions& options = {}, const Change& change = {}) {
  const auto ranks = static_cast<std::size_t>(worldSize(plan));
  Rehearsal run;
  run.stages.resize(ranks);
  run.logs.assign(static_cast<std::size_t>(steps), std::vector<StepLog>(ranks));
  std::vector<std::string> errors(ranks);
  test::Communicators communicators = inMemoryCommunicators(static_cast<int>(ranks), std::chrono::seconds(20));
  for (auto& communicator : communicators) {
    test::Watch watch;
    if (change) watch.change = [&](JobRank, std::uint32_t tag, Buffer buffer) { change(tag, buffer); };
    communicator = std::make_unique<test::WatchedCommunicator>(std::move(communicator), watch);
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        const SyntheticDevice host = syntheticHost();
        std::map<Stage, StageModule*> modules;
        for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
          if (!plan.schedule.placement.holds(Rank(r % plan.schedule.rows.size()), Stage(s))) continue;
          run.stages[r][Stage(s)] = makeSyntheticStage(plan, Stage(s), host, [&] { communicators[r]->progress(); });
          modules[Stage(s)] = run.stages[r][Stage(s)].get();
        }
        Executor executor(plan, modules, *communicators[r], options);
        for (int step = 0; step < steps; ++step) run.logs[static_cast<std::size_t>(step)][r] = executor.step(step, {});
      } catch (const std::exception& e) {
        errors[r] = e.what();
        communicators[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::copy_if(errors, std::back_inserter(run.errors), [](const std::string& error) { return !error.empty(); });
  return run;
}

Ns costOf(const Plan& plan, const Span& span) {
  const StageCost& cost = plan.costs.stages[span.stage.index()];
  const Ns whole = span.kind == SpanKind::Forward         ? cost.forward
                   : span.kind == SpanKind::Backward      ? cost.backward
                   : span.kind == SpanKind::BackwardInput ? cost.backwardInput
                                                          : cost.backwardWeight;
  return Ns(std::llround(static_cast<double>(whole) * plan.costs.microbatchScale[span.microbatch.index()]));
}

using Work = std::tuple<std::size_t, SpanKind, Stage, Microbatch>;  // rank first

std::multiset<Work> worksOf(const Trace& trace) {
  std::multiset<Work> works;
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) works.insert({span.rank.index(), span.kind, span.stage, span.microbatch});
  }
  return works;
}

std::vector<Bytes> peaksOf(const Trace& trace) {
  std::vector<Bytes> peaks(static_cast<std::size_t>(trace.ranks));
  for (const MemorySample& sample : trace.memory) peaks[sample.rank.index()] = std::max(peaks[sample.rank.index()], sample.bytes);
  return peaks;
}

class SyntheticRun : public testing::TestWithParam<std::string> {};

TEST_P(SyntheticRun, DoesEveryActionOfThePlanForAsLongAsThePlanSays) {
  const Plan plan = planOf(GetParam(), 4, 8);
  const Rehearsal run = rehearse(plan, 2);
  ASSERT_THAT(run.errors, IsEmpty());
  const Trace predicted = simulate(plan.schedule, plan.costs);
  for (const auto& logs : run.logs) {
    const Trace trace = joinTraces(logs, plan.schedule.rows.size());
    test::expectKeepsRules(trace);
    EXPECT_EQ(worksOf(trace), worksOf(predicted));
    for (const Span& span : trace.spans) {
      const Ns least = isCompute(span.kind) ? costOf(plan, span) : span.kind == SpanKind::Optimizer ? kOptimizer : 0;
      EXPECT_GE(span.end - span.start, least) << nameOf(span.kind) << " of stage " << span.stage.value;
    }
    double loss = 0;
    for (const StepLog& log : logs) loss += log.loss.value_or(0);
    EXPECT_EQ(loss, 0);
  }
}

/// A gradient that was sent is freed when it is known to be gone, which depends on time; so messages may come or go.
TEST_P(SyntheticRun, HoldsTheMemoryThatTheSimulatorPredicts) {
  const Plan plan = planOf(GetParam(), 4, 8);
  const Rehearsal run = rehearse(plan, 1);
  ASSERT_THAT(run.errors, IsEmpty());
  const std::vector<Bytes> predicted = peaksOf(simulate(plan.schedule, plan.costs)), measured = peaksOf(joinTraces(run.logs[0], 4));
  for (std::size_t r = 0; r < 4; ++r)
    EXPECT_NEAR(static_cast<double>(measured[r]), static_cast<double>(predicted[r]), 40.0 * static_cast<double>(kMessage)) << "rank " << r;
  for (const auto& stages : run.stages) {
    Bytes constant = 0;
    for (const auto& [s, stage] : stages) constant += 2 * plan.costs.stages[s.index()].gradientBytes;
    EXPECT_EQ(stages.begin()->second->bytesAlive(), constant) << "something is left after the step";
  }
}

/// How Exchange numbers the messages of four microbatches.
std::uint32_t tagOf(std::size_t transfer, int microbatch, bool gradient) {
  return static_cast<std::uint32_t>(2 * (4 * transfer + static_cast<std::size_t>(microbatch)) + (gradient ? 2 : 1));
}

TEST_P(SyntheticRun, RefusesEveryMessageThatIsNotTheOneThatWasSent) {
  const Plan plan = planOf(GetParam(), 2, 4);
  const auto& transfers = plan.partition.transfers;
  std::atomic<int> messages = 0;
  const auto count = [&](std::uint32_t tag, Buffer) {
    messages += tag >= tagOf(0, 0, false) && tag < tagOf(transfers.size(), 0, false) ? 1 : 0;
  };
  ASSERT_THAT(rehearse(plan, 1, {}, count).errors, IsEmpty());
  int expected = 0;
  for (std::size_t t = 0; t < transfers.size(); ++t) {
    for (const int m : {0, 1, 2, 3}) {
      if (plan.schedule.placement.rankOf(transfers[t].from, Microbatch(m)) ==
          plan.schedule.placement.rankOf(transfers[t].to, Microbatch(m)))
        continue;
      for (const bool gradient : {false, true}) {
        ++expected;
        const Rehearsal run = rehearse(plan, 1, {}, [&](std::uint32_t tag, Buffer buffer) {
          if (tag == tagOf(t, m, gradient)) buffer.data[buffer.bytes / 2] ^= std::byte{4};
        });
        const std::string what =
            (gradient ? "the gradient of transfer " : "the value of transfer ") + std::to_string(t) + ", microbatch " + std::to_string(m);
        EXPECT_THAT(run.errors, Contains(AllOf(HasSubstr("failed in step 0, action"), HasSubstr(what + ", step 0 went astray"))));
      }
    }
  }
  EXPECT_EQ(messages, expected);
}

INSTANTIATE_TEST_SUITE_P(Schedules, SyntheticRun, testing::Values("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "dualpipe"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

/// The values of all copies of every parameter, by stage or shared parameter; with how often a gradient of 1 was subtracted from some.
struct Copies {
  std::map<std::pair<int, std::size_t>, std::vector<std::vector<float>>> values;
  std::set<float> seen;
};

Copies copiesOf(const Rehearsal& run) {
  Copies copies;
  for (const auto& stages : run.stages) {
    for (const auto& [s, stage] : stages) {
      for (const ParameterGroup& group : stage->groups()) {
        std::vector<float> numbers(group.values.bytes / sizeof(float));
        std::memcpy(numbers.data(), group.values.data, group.values.bytes);
        copies.seen.insert(numbers.begin(), numbers.end());
        copies.values[{group.shared ? -1 : s.value, group.shared.value_or(0)}].push_back(std::move(numbers));
      }
    }
  }
  return copies;
}

struct Kept {
  std::string name, schedule;
  int replicas = 1;
  bool shards = false, sharesEnds = false;
  Sharing sharing = Sharing::Replicate;
  std::set<float> values;  ///< of all copies after 3 steps: 0, and minus 3 for each holder of the stage or shared parameter

  friend void PrintTo(const Kept& c, std::ostream* out) { *out << c.name; }
};

class SyntheticCopies : public testing::TestWithParam<Kept> {};

TEST_P(SyntheticCopies, AreEqualAfterStepsAndHaveAllHoldersGradients) {
  const Kept& c = GetParam();
  Plan plan = planOf(c.schedule, 4, 8, c.replicas);
  if (c.sharesEnds)
    plan.partition.shared.push_back({"tied", "tied", {Stage(0), Stage(plan.partition.stages.size() - 1)}, 2'000, c.sharing});
  const Rehearsal run = rehearse(plan, 3, {.shardOptimizer = c.shards});
  ASSERT_THAT(run.errors, IsEmpty());
  const Copies copies = copiesOf(run);
  const std::size_t holders = static_cast<std::size_t>(c.replicas) * (plan.schedule.placement.bidirectional() ? 2 : 1);
  for (const auto& [owner, values] : copies.values) {
    EXPECT_EQ(values.size(), owner.first < 0 ? 2 * holders : holders);
    for (const auto& copy : values) EXPECT_EQ(copy, values.front()) << "stage " << owner.first;
  }
  EXPECT_EQ(copies.seen, c.values);
}

INSTANTIATE_TEST_SUITE_P(Holders, SyntheticCopies,
                         testing::Values(Kept{"Alone", "1f1b", 1, false, false, {}, {0, -3}},
                                         Kept{"Replicas", "1f1b", 2, false, false, {}, {0, -6}},
                                         Kept{"ShardedReplicas", "1f1b", 2, true, false, {}, {0, -6}},
                                         Kept{"BothDirections", "dualpipe", 1, false, false, {}, {0, -6}},
                                         Kept{"SharedOnOneRank", "zbv", 1, false, true, Sharing::Replicate, {0, -3, -6}},
                                         Kept{"SharedByReplicas", "gpipe", 2, false, true, Sharing::Transmit, {0, -6, -12}}),
                         [](const auto& test) { return test.param.name; });

TEST(SyntheticOrder, ReadyOrderRunsAPlanToo) {
  const Plan plan = planOf("interleaved-1f1b", 2, 4);
  const Rehearsal run = rehearse(plan, 2, {.order = Order::Ready});
  ASSERT_THAT(run.errors, IsEmpty());
  EXPECT_EQ(worksOf(joinTraces(run.logs[1], 2)), worksOf(simulate(plan.schedule, plan.costs)));
}

}  // namespace
}  // namespace pw
