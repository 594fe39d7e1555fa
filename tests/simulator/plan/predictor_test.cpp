#include "simulator/plan/predictor.h"

#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "simulator/step/cost_table.h"

namespace pw {
namespace {

/// Every family at a shape it allows.
std::vector<Schedule> someOfEach() {
  std::vector<Schedule> all;
  for (const Generator& g : generators()) {
    for (const Shape& shape : {Shape{4, 4 * g.chunks, 8}, Shape{2, 2 * g.chunks, 4}}) {
      if (!g.refusal(shape)) all.push_back(g.generate(shape));
    }
  }
  return all;
}

CostTable costsOf(int stages, Ns forward) {
  return syntheticTable({.forward = {forward},
                         .backward = {},
                         .backwardInput = {1200},
                         .backwardWeight = {700},
                         .latency = 30,
                         .transfer = 50,
                         .overlap = {}},
                        stages);
}

void expectFiguresOfItsTrace(const Prediction& p, const std::string& name) {
  const Metrics measured = metricsOf(traceOf(p));
  EXPECT_EQ(p.makespan, measured.makespan) << name;
  EXPECT_EQ(p.window, measured.window) << name;
  EXPECT_EQ(p.step, measured.step) << name;
  EXPECT_DOUBLE_EQ(p.bubbleFraction, measured.bubbleFraction) << name;
  EXPECT_DOUBLE_EQ(p.bubbleFractionWindow, measured.bubbleFractionWindow) << name;
  ASSERT_EQ(p.ranks.size(), measured.ranks.size());
  for (std::size_t r = 0; r < p.ranks.size(); ++r) {
    EXPECT_EQ(p.ranks[r].busy, measured.ranks[r].busy) << name;
    EXPECT_EQ(p.ranks[r].idle, measured.ranks[r].idle) << name;
    EXPECT_EQ(p.ranks[r].peakBytes, measured.ranks[r].peakBytes) << name;
    EXPECT_EQ(p.ranks[r].peakLiveMicrobatches, measured.ranks[r].peakLiveMicrobatches) << name;
  }
}

TEST(Predictor, CountsWhatItsTraceSays) {
  for (const Schedule& schedule : someOfEach()) {
    Predictor predictor;
    const auto rows = std::make_shared<const Schedule>(planRows(schedule, 1));
    const CostTable costs = costsOf(static_cast<int>(rows->placement.stages()), 1000);
    expectFiguresOfItsTrace(*predictor.predict(rows, costs), schedule.name);
  }
}

TEST(Predictor, PredictsOtherCostsOfTheSameRowsAsAFreshOneDoes) {
  for (const Schedule& schedule : someOfEach()) {
    Predictor predictor;
    const auto rows = std::make_shared<const Schedule>(planRows(schedule, 1));
    const int stages = static_cast<int>(rows->placement.stages());
    for (const Ns forward : {Ns{1000}, Ns{1700}, Ns{300}, Ns{1000}}) {
      CostTable costs = costsOf(stages, forward);
      costs.stages.front().forward += 11;
      const auto again = predictor.predict(rows, costs);
      const auto fresh = Predictor().predict(rows, costs);
      EXPECT_EQ(traceOf(*again), traceOf(*fresh)) << schedule.name;
      EXPECT_EQ(again->makespan, fresh->makespan) << schedule.name;
    }
  }
}

TEST(Predictor, PredictsOtherRowsOfTheSameShapeAsAFreshOneDoes) {
  Predictor predictor;
  for (const Schedule& schedule : someOfEach()) {
    const auto rows = std::make_shared<const Schedule>(planRows(schedule, 1));
    const CostTable costs = costsOf(static_cast<int>(rows->placement.stages()), 1000);
    const auto next = predictor.predict(rows, costs);
    const auto fresh = Predictor().predict(rows, costs);
    EXPECT_EQ(next->program, fresh->program) << schedule.name;
    EXPECT_EQ(next->timeline, fresh->timeline) << schedule.name;
    EXPECT_EQ(traceOf(*next), traceOf(*fresh)) << schedule.name;
    EXPECT_EQ(next->step, fresh->step) << schedule.name;
  }
}

TEST(Predictor, LeavesAPredictionThatIsHeldAsItIs) {
  Predictor predictor;
  const auto rows = std::make_shared<const Schedule>(planRows(generate("1f1b", {4, 4, 8}), 1));
  const auto held = predictor.predict(rows, costsOf(4, 1000));
  const Trace before = traceOf(*held);
  for (Ns forward = 1; forward < 20; ++forward) static_cast<void>(predictor.predict(rows, costsOf(4, forward)));
  EXPECT_EQ(traceOf(*held), before);
}

}  // namespace
}  // namespace pw
