// What ranks saw of a step, brought to rank 0 as it ends.
#include "engine/gathering.h"

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "backends/messages/in_memory_communicator.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

constexpr Ns kSecond = 1'000'000'000;

Plan planOf(int ranks) {
  Plan plan;
  plan.schedule = lower(generate("gpipe", {ranks, ranks, 2}));
  return plan;
}

/// A log with so many spans, which names its rank and step.
StepLog logOf(JobRank process, int step, std::size_t spans, Ns start) {
  const Rank rank(process.value);
  const Bytes bytes = Bytes{1} * step;
  StepLog log;
  for (std::size_t i = 0; i < spans; ++i) {
    const auto at = start + static_cast<Ns>(i);
    log.spans.push_back({rank, SpanKind::Forward, Stage(rank.value), Microbatch(static_cast<std::int32_t>(i)), rank, bytes, at, at + 1});
  }
  log.memory = {{rank, start, 64 + bytes}};
  log.loss = 0.5 * step;
  log.whatNotFinite = "the loss of rank " + std::to_string(rank.value);
  log.notFinite = process;
  return log;
}

/// What rank 0 gathers of some steps of ranks as threads; each has its clock and makes its logs by it.
std::vector<std::vector<StepLog>> gathered(int ranks, int steps, const std::function<ClockFunction(JobRank)>& clockOf,
                                           const std::function<StepLog(JobRank, int)>& logOfStep) {
  auto communicators = inMemoryCommunicators(ranks, std::chrono::seconds(20));
  const Plan plan = planOf(ranks);
  std::vector<std::vector<StepLog>> result;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Communicator& communicator = *communicators[static_cast<std::size_t>(r)];
      StepGatherer gatherer(plan, communicator, clockOf(JobRank(r)));
      FlightRecord flights;
      for (int step = 0; step < steps; ++step) {
        communicator.barrier();
        std::vector<StepLog> logs = gatherer.gather(logOfStep(JobRank(r), step), flights);
        if (r == 0)
          result.push_back(std::move(logs));
        else
          EXPECT_TRUE(logs.empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

TEST(Gathering, BringsEveryRanksLogOfEveryStepWholeToRankZero) {
  for (const std::size_t spans : {0U, 3U, 5'000U}) {  // the last do not fit into the first message
    const auto log = [&](JobRank rank, int step) { return logOf(rank, step, spans, kSecond); };
    const auto steps = gathered(
        3, 4, [](JobRank) { return monotonicNow; }, log);
    ASSERT_EQ(steps.size(), 4U);
    for (int step = 0; step < 4; ++step) {
      const auto& logs = steps[static_cast<std::size_t>(step)];
      ASSERT_EQ(logs.size(), 3U);
      for (int r = 0; r < 3; ++r) EXPECT_EQ(logs[static_cast<std::size_t>(r)], log(JobRank(r), step)) << spans << " spans, rank " << r;
    }
  }
}

TEST(Gathering, PutsTimesOnTheClockOfRankZero) {
  constexpr Ns kHour = 3600 * kSecond;
  const auto clockOf = [](JobRank rank) -> ClockFunction { return [rank] { return monotonicNow() + rank.value * kHour; }; };
  const Ns begin = monotonicNow();
  const auto steps = gathered(3, 5, clockOf, [&](JobRank rank, int step) { return logOf(rank, step, 1, clockOf(rank)()); });
  const Ns end = monotonicNow();
  const Ns slack = end - begin;  // a reading is right to half its round trip, which was within this
  for (const auto& logs : steps) {
    for (const StepLog& log : logs) {
      EXPECT_GE(log.spans.front().start, begin - slack);
      EXPECT_LE(log.spans.front().start, end + slack);
      EXPECT_EQ(log.memory.front().time, log.spans.front().start);
    }
  }
}

TEST(Gathering, OfASingleRankIsItsLog) {
  const auto log = [](JobRank rank, int step) { return logOf(rank, step, 2, kSecond); };
  const auto steps = gathered(
      1, 2, [](JobRank) { return monotonicNow; }, log);
  EXPECT_EQ(steps[1], std::vector<StepLog>{log(JobRank(0), 1)});
}

TEST(Gathering, FromARankThatHangsIsWhatTheFlightRecordAwaits) {
  auto communicators = inMemoryCommunicators(2, std::chrono::milliseconds(50));
  const Plan plan = planOf(2);
  std::thread other([&] { StepGatherer(plan, *communicators[1]); });  // which then sends nothing
  Communicator& own = *communicators[0];
  StepGatherer gatherer(plan, own);
  other.join();
  FlightRecord flights;
  flights.begin(7);
  EXPECT_THROW(static_cast<void>(gatherer.gather({}, flights)), Error);
  EXPECT_THAT(flights.awaited(plan, own), testing::StartsWith("waited for step times from rank 1 (posted "));
  const auto record = nlohmann::json::parse(flights.toJson(plan, own, false, "a failure"));
  EXPECT_EQ(record["awaited"]["what"], "step times from rank 1");
  EXPECT_EQ(record["awaited"]["kind"], "receive");
  EXPECT_EQ(record["step"], 7);
}

}  // namespace
}  // namespace pw
