#include "simulator/search/orders.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulator/costs/layer_chain.h"
#include "simulator/plan/made_order.h"

namespace pw::test {
namespace {

Layer layerOf(const std::string& name, Ns forward, Ns optimizer) {
  Layer layer{name, forward, forward, 0, 0, 0, 0, 0, 0, ""};
  layer.optimizer = optimizer;
  return layer;
}

/// The cut after the first layer has the shorter makespan and two optimizers on the second rank; that before the last has one on each. No
/// order of the second cut undercuts the makespan of the first, but its step is shorter.
TEST(WithOrder, ChoosesTheCutWhoseStepIsTheShortest) {
  const ModelGraph graph = chainOf({"three", 1, 0, 0, {layerOf("a", 20, 0), layerOf("b", 10, 100), layerOf("c", 10, 100)}}, "/three.json");
  SearchShape shape;
  shape.request.ranks = 2;
  shape.request.microbatches = 4;
  shape.request.schedule = "1f1b";
  shape.stages = 2;
  shape.profile = {std::make_shared<const Profile>(profileOf(graph)), false};
  shape.model = std::make_shared<ModelCosts>(graph, *shape.profile.profile, 1);
  const std::vector<NodeId> places{NodeId(1), NodeId(2)};
  const auto made = [&](NodeId cut) {
    PlanRequest request = shape.request;
    request.schedule = kAutoSchedule;
    request.begins = {cut};
    return makeOrder(request, *shape.model, 2, {.seconds = kOrderSeconds});
  };
  const MadeOrder first = made(NodeId(1)), second = made(NodeId(2));
  // Rank 1 waits for one F of rank 0, then works for 4 · 40, and rank 0 ends one B later; then 200 of the optimizer on rank 1.
  EXPECT_EQ(first.certificate->time, 20 + 4 * 40 + 20);
  EXPECT_EQ(first.step, 20 + 4 * 40 + 200);
  // Rank 0 works for 4 · 60, and waits for F and B of rank 1 once, at the end of which it has nothing else; then each rank's optimizer.
  EXPECT_GT(second.certificate->lowerBound, first.certificate->time);
  EXPECT_LT(second.step, first.step);
  const Candidate from = Evaluator(shape).evaluate({SplitSource::Time, {NodeId(1)}}, RecomputeNone()).orThrow();
  const std::optional<Candidate> best = withOrder({&shape, &from}, places, [] { return true; });
  ASSERT_TRUE(best);
  EXPECT_EQ(best->request.begins, std::vector{NodeId(2)});
  EXPECT_EQ(best->step, second.step);
}

}  // namespace
}  // namespace pw::test
