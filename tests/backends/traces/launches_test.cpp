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
      KernelKind kind;
    };
    std::vector<Kernel> kernels;
    for (int i = 0; i < 4; ++i) {
      launches.addLaunch(7, ++correlation, Ns(100 * i + 10));
      kernels.push_back({correlation, Ns(100 * i + 20), Ns(100 * i + 60), KernelKind::Compute});
    }
    for (const int i : collectivesIn) {
      launches.addLaunch(7, ++correlation, Ns(100 * i + 20));
      kernels.push_back({correlation, Ns(100 * i + 30), Ns(100 * i + until), KernelKind::Collective});
    }
    for (const Kernel& k : kernels) launches.addKernel(k.kind, 7, k.correlation, k.start, k.end, stream);
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

TEST(Messages, AtTheEndsOfAnActionAreNoPartOfIt) {
  // As of torch's GPipe, which receives and sends in its range `Backward 0`; the second range holds a message alone.
  std::vector<AnnotatedRange> ranges{{.process = 7, .start = 0, .end = 50, .kind = 1}, {.process = 7, .start = 50, .end = 90, .kind = 1}};
  Launches launches(ranges);
  for (const std::int64_t correlation : {1, 2, 3}) launches.addLaunch(7, correlation, Ns(10 * correlation));
  launches.addLaunch(7, 4, 60);
  launches.addKernel(KernelKind::Message, 7, 1, 12, 44, 20);
  launches.addKernel(KernelKind::Compute, 7, 2, 44, 64, 7);
  launches.addKernel(KernelKind::Message, 7, 3, 64, 80, 20);
  launches.addKernel(KernelKind::Message, 7, 4, 80, 95, 20);
  launches.finish();
  EXPECT_EQ(ranges[0].firstKernel, 44);
  EXPECT_EQ(ranges[0].lastKernel, 64);
  EXPECT_EQ(ranges[1].firstKernel, 80);
  EXPECT_EQ(ranges[1].lastKernel, 95);
}

TEST(Kernels, OfNcclAreToldByName) {
  EXPECT_EQ(kernelKindOf("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), KernelKind::Collective);
  EXPECT_EQ(kernelKindOf("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"), KernelKind::Collective);
  EXPECT_EQ(kernelKindOf("ncclDevKernel_SendRecv"), KernelKind::Message);
  EXPECT_EQ(kernelKindOf("ampere_bf16_s16816gemm"), KernelKind::Compute);
}

}  // namespace
}  // namespace pw
