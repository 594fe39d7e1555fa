#include "simulator/order/problem/model.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "tests/support/order_reference.h"

namespace pw {
namespace {

using test::draw;
using test::randomOrderProblem;

TEST(OrderTimer, EstimatesWhatTwoNeighboursTakeTheOtherWayRound) {
  int longer = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(draw(random, 1, 4));
    const Shape shape{ranks, 2 * ranks, static_cast<int>(draw(random, 2, 6))};
    OrderProblem problem = randomOrderProblem(random, ranks, wavePlacement(shape), shape.microbatches);
    for (MessageCost& message : problem.costs.messages) message.transfer = 0;  // no channel to wait for
    const OrderModel model(problem);
    OrderTimer timer(model), changed(model);
    OrderRows rows = rowsOf(model, problem, generatorOf("zbv").generate(shape));
    ASSERT_TRUE(timer.run(rows));
    timer.measureTails(rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t i = 1; i + 1 < rows[r].size(); ++i) {  // with the first a window begins
        std::swap(rows[r][i], rows[r][i + 1]);
        const Ns estimate = timer.estimate(rows[r], Rank(r), i, i + 1);
        if (changed.run(rows)) {
          EXPECT_LE(estimate, changed.objective());
          EXPECT_LE(changed.objective(), std::max(timer.objective(), estimate));
          longer += estimate > timer.objective() ? 1 : 0;
        } else {
          ++refused;
        }
        std::swap(rows[r][i], rows[r][i + 1]);
      }
    }
  }
  EXPECT_GT(longer, 100);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace pw
