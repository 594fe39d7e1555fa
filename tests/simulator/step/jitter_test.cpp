#include "simulator/step/jitter.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/generate.h"

namespace pw {
namespace {

/// 1F1B on four ranks with messages, in units long enough that rounding does not show.
Program program() {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  costs.latency = 100'000;
  costs.transfer = 500'000;
  return compile(generate("1f1b", {4, 4, 16}), syntheticTable(costs, 4));
}

Ns plainMakespan(const Program& program) {
  Times times;
  execute(program, times);
  return makespanOf(program, program.duration, times);
}

TEST(Jitter, WithoutSpreadEveryDrawIsThePlainMakespan) {
  const Program compiled = program();
  EXPECT_EQ(jittered(compiled, 0, 7), compiled.duration);
  EXPECT_EQ(drawJitter(compiled, 0, 7, 5, {}).makespans, std::vector<Ns>(5, plainMakespan(compiled)));
}

TEST(Jitter, FactorsHaveTheMean1AndTheSpreadAskedFor) {
  // A log-normal factor exp(σn − σ²/2) has the mean 1 and the variance exp(σ²) − 1.
  const Program compiled = program();
  for (const double sigma : {0.02, 0.1, 0.3}) {
    double sum = 0;
    double squares = 0;
    double count = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      const std::vector<Ns> drawn = jittered(compiled, sigma, seed);
      ASSERT_EQ(drawn.size(), compiled.duration.size());
      for (std::size_t s = 0; s < drawn.size(); ++s) {
        const double factor = static_cast<double>(drawn[s]) / static_cast<double>(compiled.duration[s]);
        sum += factor;
        squares += factor * factor;
        count += 1;
      }
    }
    const double mean = sum / count;
    const double spread = std::sqrt(std::exp(sigma * sigma) - 1);
    EXPECT_NEAR(mean, 1, 5 * spread / std::sqrt(count)) << "sigma " << sigma << ", seeds 1 to 400";  // five standard errors
    EXPECT_NEAR(std::sqrt(squares / count - mean * mean), spread, spread / 50) << "sigma " << sigma << ", seeds 1 to 400";
  }
}

TEST(Jitter, OneSeedGivesOneDrawAndAnotherAnother) {
  const Program compiled = program();
  EXPECT_EQ(jittered(compiled, 0.1, 3), jittered(compiled, 0.1, 3));
  EXPECT_NE(jittered(compiled, 0.1, 3), jittered(compiled, 0.1, 4));
}

TEST(Jitter, DrawsTakeTheSeedsOneAfterTheOtherAndComeSorted) {
  const Program compiled = program();
  std::vector<Ns> expected;
  for (std::uint64_t seed = 11; seed < 16; ++seed) expected.push_back(drawJitter(compiled, 0.2, seed, 1, {}).makespans.front());
  std::ranges::sort(expected);
  std::vector<int> told;
  const Jitter jitter = drawJitter(compiled, 0.2, 11, 5, [&](int done) {
    told.push_back(done);
    return true;
  });
  EXPECT_EQ(jitter.makespans, expected);
  EXPECT_EQ(told, (std::vector{1, 2, 3, 4, 5}));
  EXPECT_EQ(drawJitter(compiled, 0.2, 11, 1'000'000, [](int done) { return done < 5; }).makespans, expected);
  EXPECT_EQ(jitter.sigma, 0.2);
  EXPECT_EQ(jitter.seed, 11u);
}

TEST(Jitter, UnevenDurationsMakeTheMakespanLongerOnAverage) {
  // The makespan is a largest of sums, which is convex: its mean is at least that of the mean durations.
  const Program compiled = program();
  const Jitter jitter = drawJitter(compiled, 0.2, 1, 200, {});
  Ns sum = 0;
  for (const Ns makespan : jitter.makespans) sum += makespan;
  EXPECT_GT(sum / 200, plainMakespan(compiled));
}

TEST(Jitter, AQuantileIsTheSmallestDrawThatSoManyDoNotExceed) {
  const Jitter four{0, 0, {10, 20, 30, 40}};
  EXPECT_EQ(quantile(four, 0), 10);
  EXPECT_EQ(quantile(four, 0.25), 10);  // one of four does not exceed it
  EXPECT_EQ(quantile(four, 0.26), 20);
  EXPECT_EQ(quantile(four, 0.5), 20);
  EXPECT_EQ(quantile(four, 0.75), 30);
  EXPECT_EQ(quantile(four, 0.76), 40);
  EXPECT_EQ(quantile(four, 1), 40);
  EXPECT_EQ(quantile({0, 0, {5}}, 0), 5);
  EXPECT_EQ(quantile({0, 0, {5}}, 0.5), 5);
  EXPECT_EQ(quantile({0, 0, {5}}, 1), 5);
}

}  // namespace
}  // namespace pw
