// A run's step compared with its prediction.
#include "engine/planning/run_verdict.h"

#include <gtest/gtest.h>

#include "tests/support/reducing_step.h"

namespace pw {
namespace {

TEST(RunVerdict, CutsWhatWasMeasured) {
  RunRecord run;
  run.predicted = test::reducingStep(10);
  const StepVerdict judged = judgeRun(run, test::reducingStep(40));
  EXPECT_EQ(judged.beforeWaits, 0);
  EXPECT_EQ(judged.afterWaits, 30);
  EXPECT_EQ(judged.verdict.comparison.byKind, judgeSteps({test::reducingStep(10)}, {test::reducingStep(40)}).verdict.comparison.byKind);
}

}  // namespace
}  // namespace pw
