// A replay takes durations from a measured trace and all else from the plan.
#include "simulator/step/replay.h"
#include "simulator/step/cost_table.h"

#include <gtest/gtest.h>

#include <tuple>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/report/metrics.h"

namespace pw {
namespace {

/// F 3, B 5, messages of 2 between neighbours.
CostTable costsOf(int stages) {
  SyntheticCosts costs;
  costs.forward = {3};
  costs.backward = {5};
  costs.latency = 2;
  return syntheticTable(costs, stages);
}

TEST(Replay, OfThePredictionIsThePrediction) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zbv", "chimera"}) {
    const int chunks = generatorOf(name).chunks;
    const Schedule schedule = generate(name, {4, 4 * chunks, 8});
    const CostTable costs = costsOf(4 * chunks);
    const Trace predicted = simulate(schedule, costs);
    EXPECT_EQ(replay(schedule, costs, predicted).orThrow(), predicted) << name;
  }
}

TEST(Replay, MovesWhatFollowsALongerAction) {
  const Schedule schedule = generate("gpipe", {2, 2, 1});
  const CostTable costs = costsOf(2);
  Trace measured = simulate(schedule, costs);  // F0 0–3, F1 5–8, B1 8–13, B0 15–20
  for (Span& span : measured.spans) {
    if (span.kind == SpanKind::Forward && span.stage == Stage(1)) span.end += 4;
  }
  EXPECT_EQ(metricsOf(replay(schedule, costs, measured).orThrow()).makespan, 24);
}

TEST(Replay, AddsThePiecesOfABackwardAndLeavesOutOtherReplicas) {
  const Schedule schedule = generate("gpipe", {2, 2, 1});
  const CostTable costs = costsOf(2);
  Trace measured = simulate(schedule, costs);  // F0 0–3, F1 5–8, B1 8–13, B0 15–20
  Span piece = measured.spans.back();
  ASSERT_EQ(std::tuple(piece.kind, piece.stage), std::tuple(SpanKind::Backward, Stage(0)));
  piece.start = 21, piece.end = 24;
  measured.spans.push_back(piece);
  piece.rank = Rank(2);  // the same of the second replica
  measured.spans.push_back(piece);
  measured.ranks = 4;
  EXPECT_EQ(metricsOf(replay(schedule, costs, measured).orThrow()).makespan, 15 + 5 + 3);
}

TEST(Replay, NamesAnActionThatWasNotMeasured) {
  const Schedule schedule = generate("gpipe", {2, 2, 2});
  Trace measured = simulate(schedule, costsOf(2));
  std::erase_if(measured.spans,
                [](const Span& s) { return s.kind == SpanKind::Forward && s.stage == Stage(1) && s.microbatch == Microbatch(1); });
  const Answer<Trace> none = replay(schedule, costsOf(2), measured);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.refusal().why, "Action 1F1 was not measured; replay a run of this plan.");
}

}  // namespace
}  // namespace pw
