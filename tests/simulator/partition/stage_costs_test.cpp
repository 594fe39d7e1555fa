#include "simulator/partition/stage_costs.h"

#include <gtest/gtest.h>

namespace pw::test {
namespace {

TEST(OptimizerState, IsCopiesOfWhatIsUpdatedSpreadOverShards) {
  CostTable costs;
  costs.stages.resize(1);
  costs.stages[0].parameterBytes = 100;
  costs.stages[0].updatedBytes = 60;
  costs.stages[0].optimizer = 30;
  addOptimizerState(costs, 2, 4);
  EXPECT_EQ(costs.stages[0].optimizerBytes, 30);
  EXPECT_EQ(costs.stages[0].optimizer, 30 * 7 / 3 / 4) << "two states read and written beside the three of plain SGD, on one rank of four";
}

}  // namespace
}  // namespace pw::test
