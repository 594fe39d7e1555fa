#include "simulator/trace/executed.h"

#include <gtest/gtest.h>

#include <random>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/simulate.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

/// Without pauses, which no trace shows.
Schedule withoutPauses(Schedule schedule) {
  for (std::vector<Action>& row : schedule.rows) std::erase_if(row, [](const Action& action) { return !isCompute(action.kind); });
  return schedule;
}

TEST(Executed, FindsTheScheduleOfEveryFamilyInItsTraceWhateverItCosts) {
  std::mt19937_64 random(20);
  int tried = 0, named = 0;
  for (const Generator& family : generators()) {
    for (const Shape shape : {Shape{4, 4, 8}, Shape{4, 8, 8}, Shape{2, 4, 4}, Shape{3, 3, 7}, Shape{8, 16, 24}}) {
      if (family.refusal(shape)) continue;
      const Schedule schedule = withoutPauses(family.generate(shape));
      CostTable costs;
      costs.stages.resize(static_cast<std::size_t>(shape.stages));
      for (auto& stage : costs.stages) {
        for (Ns* const time : {&stage.forward, &stage.backwardInput, &stage.backwardWeight})
          *time = Ns(std::uniform_int_distribution<std::int64_t>(100, 900)(random));
        stage.backward = stage.backwardInput + stage.backwardWeight;
      }
      const auto executed = executedSchedule(simulate(schedule, costs));
      ASSERT_TRUE(executed) << family.name;
      EXPECT_EQ(executed->placement, schedule.placement) << family.name;
      EXPECT_EQ(executed->microbatches, shape.microbatches) << family.name;
      EXPECT_EQ(executed->rows, schedule.rows) << family.name << " on " << shape.ranks;
      ASSERT_FALSE(executed->name.empty()) << family.name;
      named += static_cast<int>(executed->name == family.name);  // else an earlier family makes the same rows
      EXPECT_EQ(withoutPauses(generate(executed->name, shape)).rows, schedule.rows) << executed->name << " for " << family.name;
      ++tried;
    }
  }
  EXPECT_GT(tried, 30);
  EXPECT_GT(named, tried * 3 / 4);
}

TEST(Executed, AnOrderThatNoFamilyMakesHasNoName) {
  Schedule schedule = generate("gpipe", {2, 2, 4});
  std::swap(schedule.rows[0][0], schedule.rows[0][1]);
  EXPECT_EQ(familyOf(schedule), "");
  EXPECT_EQ(familyOf(lower(generate("gpipe", {2, 2, 4}))), "gpipe") << "messages do not count";
}

Span span(int rank, SpanKind kind, int stage, int microbatch, Ns start) {
  return {Rank(rank), kind, Stage(stage), Microbatch(microbatch), Rank(rank), 0, start, start + 10};
}

TEST(Executed, APartOfAStepIsNoSchedule) {
  const Trace whole{2,
                    {span(0, SpanKind::Forward, 0, 0, 0), span(1, SpanKind::Forward, 1, 0, 10), span(1, SpanKind::Backward, 1, 0, 20),
                     span(0, SpanKind::Backward, 0, 0, 30)},
                    {}};
  ASSERT_TRUE(executedSchedule(whole));
  EXPECT_EQ(executedSchedule(whole)->name, "gpipe");
  for (std::size_t i = 0; i < whole.spans.size(); ++i) {
    Trace part = whole;
    part.spans.erase(part.spans.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(executedSchedule(part)) << i;
  }
  Trace moved = whole;  // its backward is on a rank without its forward
  moved.spans[3].rank = moved.spans[3].peer = Rank(1);
  EXPECT_FALSE(executedSchedule(moved));
  Trace twice = whole;  // two pipelines
  twice.spans.push_back(span(1, SpanKind::Forward, 0, 0, 40));
  EXPECT_FALSE(executedSchedule(twice));
  Trace unknown = whole;
  unknown.spans[0].stage = Stage(-1);
  EXPECT_FALSE(executedSchedule(unknown));
  EXPECT_FALSE(executedSchedule(Trace{}));
}

}  // namespace
}  // namespace pw
