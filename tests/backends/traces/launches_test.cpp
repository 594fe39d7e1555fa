#include "backends/traces/readers/launches.h"

#include <gtest/gtest.h>

#include <vector>

namespace pw {
namespace {

/// Four backwards of a process, 100 ns apart, each with one kernel of its own that ends 40 ns after it began.
struct FourBackwards : testing::Test {
  std::vector<AnnotatedRange> ranges;
  std::int64_t correlation = 0;

  void SetUp() override {
    for (int i = 0; i < 4; ++i) ranges.push_back({.process = 7, .start = Ns(100 * i), .end = Ns(100 * i + 50), .kind = 1});
  }
  /// The kernels are launched in the ranges of these numbers.
  void run(const std::vector<int>& collectivesIn, std::int64_t stream, int until = 90) {
    Launches launches(ranges);
    struct Kernel {
      std::int64_t correlation;
      Ns start, end;
      std::optional<std::int64_t> stream;
    };
    std::vector<Kernel> kernels;
    for (int i = 0; i < 4; ++i) {
      launches.addLaunch(7, ++correlation, Ns(100 * i + 10));
      kernels.push_back({correlation, Ns(100 * i + 20), Ns(100 * i + 60), {}});
    }
    for (const int i : collectivesIn) {
      launches.addLaunch(7, ++correlation, Ns(100 * i + 20));
      kernels.push_back({correlation, Ns(100 * i + 30), Ns(100 * i + until), stream});
    }
    for (const Kernel& k : kernels) launches.addKernel(7, k.correlation, k.start, k.end, k.stream);
    launches.finish();
  }
  [[nodiscard]] std::vector<Ns> ends() const {
    std::vector<Ns> ends;
    for (const AnnotatedRange& range : ranges) ends.push_back(range.lastKernel);
    return ends;
  }
};

TEST_F(FourBackwards, DoNotHoldAReductionThatTheLastOneLaunches) {
  run({3}, 30);
  EXPECT_EQ(ends(), (std::vector<Ns>{60, 160, 260, 360}));
  EXPECT_EQ(ranges[3].reducedUntil, 390) << "what of it comes after";
}

TEST_F(FourBackwards, HaveNothingAfterThemThatOtherActionsHide) {
  run({2}, 30, 130);  // the last backward's kernel begins at 320
  EXPECT_EQ(ends(), (std::vector<Ns>{60, 160, 260, 360}));
  for (const AnnotatedRange& range : ranges) EXPECT_EQ(range.reducedUntil, 0);
}

TEST_F(FourBackwards, HoldCollectivesThatEachOneLaunches) {
  run({0, 1, 2, 3}, 30);
  EXPECT_EQ(ends(), (std::vector<Ns>{90, 190, 290, 390})) << "of tensor parallelism";
}

TEST_F(FourBackwards, HoldOneThatIsAloneInItsRange) {
  ranges.push_back({.process = 7, .start = 400, .end = 450, .kind = 1});
  run({4}, 30);
  EXPECT_EQ(ranges.back().firstKernel, 430);
  EXPECT_EQ(ranges.back().lastKernel, 490);
  EXPECT_EQ(ranges.back().reducedUntil, 0);
}

TEST(CollectiveKernels, AreNamedByNccl) {
  EXPECT_TRUE(isCollectiveKernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"));
  EXPECT_TRUE(isCollectiveKernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"));
  EXPECT_FALSE(isCollectiveKernel("ncclDevKernel_SendRecv"));
  EXPECT_FALSE(isCollectiveKernel("ampere_bf16_s16816gemm"));
}

}  // namespace
}  // namespace pw
