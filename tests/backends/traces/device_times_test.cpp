#include "backends/traces/readers/device_times.h"

#include <gtest/gtest.h>

#include "backends/traces/readers/reduction_waits.h"
#include "schedules/error.h"

namespace pw {
namespace {

Span span(Track track, SpanKind kind, int microbatch, Ns start, Ns end) {
  return {asRank(track), kind, Stage(0), Microbatch(microbatch), Rank(-1), 0, start, end};
}

/// A host's thread, and its device's stream.
FileEvents twoTracks() {
  FileEvents file;
  file.tracks = {{.process = 10, .thread = 10}, {.process = 0, .thread = 7, .device = true}};
  return file;
}
constexpr Track kHost(0), kStream(1);

TEST(DeviceTimes, AreOfTheKernelsThatARangeLaunchedOnWhateverThread) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Forward, 0, 0, 10), span(kHost, SpanKind::Backward, 0, 20, 30),
                // as Kineto copies them: the backward's kernels are autograd's
                span(kStream, SpanKind::Forward, 0, 100, 140), span(kStream, SpanKind::Backward, 0, 198, 200)};
  file.marks = {{kHost, 3, -5}};
  DeviceTimes times;
  times.addLaunch(10, 1, 5);
  times.addLaunch(10, 2, 25);
  times.addLaunch(10, 3, 26);
  times.addKernel("gemm", 0, 1, 7, 100, 140);
  times.addKernel("gemm", 0, 2, 7, 150, 180);
  times.addKernel("gemm", 0, 3, 7, 190, 200);
  times.apply(file);
  ASSERT_EQ(file.spans.size(), 2U);
  EXPECT_TRUE(file.exactStarts);
  for (const Span& found : file.spans) EXPECT_TRUE(file.tracks[trackOf(found).index()].device);
  EXPECT_EQ(file.spans[0].start, 100);
  EXPECT_EQ(file.spans[1].start, 150);
  EXPECT_EQ(file.spans[1].end, 200);
  EXPECT_EQ(file.marks.front().start, 100) << "the step begins with its first kernel";
}

TEST(DeviceTimes, LeaveAProgramOnCpusAsItIs) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Forward, 0, 0, 10), span(kHost, SpanKind::Forward, 1, 20, 30),
                span(kHost, SpanKind::Forward, 2, 40, 50)};
  const std::vector<Span> before = file.spans;
  DeviceTimes times;
  times.addLaunch(10, 1, 5);
  times.addKernel("copy", 0, 1, 7, 100, 140);
  times.apply(file);
  EXPECT_EQ(file.spans, before) << "one of three launched something";
}

TEST(DeviceTimes, LeaveThreadsOfOneProgramAsTheyAre) {
  FileEvents file = twoTracks();
  file.tracks.push_back({.process = 10, .thread = 11});
  file.spans = {span(kHost, SpanKind::Forward, 0, 0, 10), span(Track(2), SpanKind::Forward, 0, 5, 15)};
  const std::vector<Span> before = file.spans;
  DeviceTimes times;
  times.addLaunch(10, 1, 6);  // of either
  times.addKernel("gemm", 0, 1, 7, 100, 140);
  times.apply(file);
  EXPECT_EQ(file.spans, before);
}

/// Two processes on two devices, which launch the same correlations: a forward and a backward each, whose kernels take 10 and 20 more.
/// The process that the file names last has the first device.
TEST(DeviceTimes, OfProcessesInOneFileAreEachOfItsOwnDevice) {
  for (const bool sameDevice : {false, true}) {
    SCOPED_TRACE(sameDevice);
    FileEvents file;
    file.tracks = {{.process = 20, .thread = 1},
                   {.process = 10, .thread = 1},
                   {.process = 0, .thread = 7, .device = true},
                   {.process = 1, .thread = 7, .device = true}};
    DeviceTimes times;
    for (const int rank : {0, 1}) {
      const Track host(rank), device(sameDevice ? 2 : 3 - rank);
      const std::int64_t process = rank == 0 ? 20 : 10, first = sameDevice ? 100 * rank : 0;
      const auto spanOf = [&](Track track, SpanKind kind, Ns start, Ns end) {
        return Span{asRank(track), kind, Stage(rank), Microbatch(0), Rank(-1), 0, start, end};
      };
      file.spans.push_back(spanOf(host, SpanKind::Forward, 0, 10));
      file.spans.push_back(spanOf(host, SpanKind::Backward, 20, 30));
      file.spans.push_back(spanOf(device, SpanKind::Forward, Ns(100 + 50 * rank), Ns(110 + 50 * rank)));
      times.addLaunch(process, first + 1, 5);
      times.addLaunch(process, first + 1, 4);  // of the driver within the runtime's
      times.addLaunch(process, first + 2, 25);
      times.addKernel("gemm", file.tracks[device.index()].process, first + 1, 7, Ns(100 + 50 * rank), Ns(110 + 50 * rank));
      times.addKernel("gemm", file.tracks[device.index()].process, first + 2, 7, Ns(300 - 50 * rank), Ns(320 - 50 * rank));
    }
    times.apply(file);
    ASSERT_EQ(file.spans.size(), 4U);
    EXPECT_FALSE(file.hostTimes);
    for (const Span& timed : file.spans) {
      const int rank = timed.stage.value;
      EXPECT_TRUE(file.tracks[trackOf(timed).index()].device);
      EXPECT_EQ(file.tracks[trackOf(timed).index()].process, rank == 0 ? 20 : 10);
      EXPECT_EQ(timed.start, timed.kind == SpanKind::Forward ? 100 + 50 * rank : 300 - 50 * rank);
      EXPECT_EQ(timed.end - timed.start, timed.kind == SpanKind::Forward ? 10 : 20);
    }
  }
}

TEST(DeviceTimes, AreNotOfKernelsWithoutACorrelation) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Forward, 0, 0, 10)};
  const std::vector<Span> before = file.spans;
  DeviceTimes times;
  times.addLaunch(10, -1, 5);
  times.addKernel("gemm", 0, -1, 7, 100, 140);
  times.apply(file);
  EXPECT_EQ(file.spans, before);
}

/// A hundred replicas do the same; only their launches tell whose a device is.
TEST(DeviceTimes, OfManyProcessesThatDoTheSameAreOfThoseThatLaunched) {
  constexpr int kProcesses = 100;
  FileEvents file;
  DeviceTimes times;
  for (int p = 0; p < kProcesses; ++p) {
    file.tracks.push_back({.process = 1000 + p, .thread = 1});
    file.tracks.push_back({.process = kProcesses - 1 - p, .thread = 7, .device = true});
    for (const int t : {2 * p, 2 * p + 1}) file.spans.push_back(span(Track(t), SpanKind::Forward, 0, 0, 10));
    times.addLaunch(1000 + p, p, 5);
    times.addKernel("gemm", kProcesses - 1 - p, p, 7, Ns(100 + p), Ns(200 + p));
  }
  times.apply(file);
  ASSERT_EQ(file.spans.size(), static_cast<std::size_t>(kProcesses));
  for (const Span& timed : file.spans) EXPECT_EQ(timed.start, 100 + file.tracks[trackOf(timed).index()].process - 1000);
}

TEST(DeviceTimes, RefuseMoreProcessesThanAPipelineHasRanks) {
  FileEvents file;
  for (int p = 0; p <= kMaxRanks; ++p) {
    file.tracks.push_back({.process = p, .thread = 1});
    file.spans.push_back(span(Track(p), SpanKind::Forward, 0, 0, 10));
  }
  DeviceTimes times;
  times.addKernel("gemm", 9999, 1, 7, 5, 6);
  EXPECT_THROW(times.apply(file), UsageError);
}

TEST(DeviceTimes, KeepBackwardsThatTheDevicesCopiesLack) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Forward, 0, 0, 10), span(kHost, SpanKind::Backward, 0, 20, 30),
                span(kStream, SpanKind::Forward, 0, 100, 140)};
  DeviceTimes times;
  times.addKernel("gemm", 0, 1, 7, 100, 140);  // its launch is missing
  times.apply(file);
  EXPECT_TRUE(file.hostTimes);
  ASSERT_EQ(file.spans.size(), 2U);
  for (const Span& kept : file.spans) EXPECT_EQ(trackOf(kept), kHost);
}

TEST(ReductionWaits, LeaveCollectivesThatEachBackwardWaitsFor) {
  FileEvents file = twoTracks();
  ReductionWaits waits;
  for (int m = 0; m < 3; ++m) {
    const Ns begin(1000 * m);
    file.spans.push_back(span(kHost, SpanKind::Backward, m, begin, begin + 300));
    waits.addOperator(10, 10, begin + 10, begin + 100);
    waits.addCollective(10, begin + 90, begin + 290);
  }
  const std::vector<Span> before = file.spans;
  waits.cut(file);
  EXPECT_EQ(file.spans, before) << "of tensor parallelism";
}

TEST(ReductionWaits, EndABackwardWhereItDoesNothingMore) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Backward, 0, 0, 100), span(kHost, SpanKind::Backward, 1, 200, 1300)};
  ReductionWaits waits;
  waits.addOperator(10, 10, 10, 90);
  waits.addOperator(10, 10, 210, 290);
  waits.addCollective(10, 250, 1270);     // launched by a bucket's last gradient, on another thread
  waits.addOperator(10, 10, 1280, 1290);  // copies the bucket
  waits.addOperator(10, 11, 300, 1200);   // another thread's work
  waits.cut(file);
  ASSERT_EQ(file.spans.size(), 3U);
  EXPECT_EQ(file.spans[0].end, 100) << "no collective ends in it";
  EXPECT_EQ(file.spans[1].end, 290);
  EXPECT_EQ(file.spans[2].kind, SpanKind::ReduceGrad);
  EXPECT_EQ(file.spans[2].start, 290);
  EXPECT_EQ(file.spans[2].end, 1300);
}

TEST(ReductionWaits, LeaveABackwardThatComputesWhileACollectiveEnds) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Backward, 0, 0, 1000)};
  ReductionWaits waits;
  waits.addOperator(10, 10, 10, 400);
  waits.addCollective(10, 100, 450);
  waits.addOperator(10, 10, 500, 1000);
  waits.cut(file);
  ASSERT_EQ(file.spans.size(), 1U);
  EXPECT_EQ(file.spans[0].end, 1000);
}

/// Of two collectives that overlap, the one that ends first begins after the label; the other is within it.
TEST(ReductionWaits, LeaveALabelInWhichAnyCollectiveIs) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::ReduceGrad, 0, 350, 360), span(kHost, SpanKind::ReduceGrad, 0, 600, 610)};
  ReductionWaits waits;
  waits.addCollective(10, 355, 505);
  waits.addCollective(10, 400, 410);
  waits.cut(file);
  ASSERT_EQ(file.spans.size(), 1U) << "in the other is none";
  EXPECT_EQ(file.spans[0].start, 350);
}

TEST(ReductionWaits, AreForCollectivesOfGloo) {
  EXPECT_TRUE(isHostCollective("gloo:all_reduce"));
  EXPECT_TRUE(isHostCollective("gloo:reduce_scatter"));
  EXPECT_FALSE(isHostCollective("gloo:recv"));
  EXPECT_FALSE(isHostCollective("nccl:all_reduce"));
}

TEST(DeviceTimes, OfAnOverlappedPairAreThoseOfItsKernels) {
  FileEvents file = twoTracks();
  file.spans = {span(kHost, SpanKind::Forward, 5, 0, 50), span(kHost, SpanKind::Backward, 2, 0, 50)};
  DeviceTimes times;
  times.addLaunch(10, 1, 10);
  times.addKernel("gemm", 0, 1, 7, 60, 100);
  times.apply(file);
  EXPECT_EQ(file.unusable, 0U);
  ASSERT_EQ(file.spans.size(), 2U);
  for (const Span& timed : file.spans) {
    EXPECT_EQ(timed.start, 60);
    EXPECT_EQ(timed.end, 100);
  }
}

}  // namespace
}  // namespace pw
