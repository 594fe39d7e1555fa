#include "app/gui/timeline/drawing/matches.h"

#include <gtest/gtest.h>

namespace pw::gui {
namespace {

Timeline trackOfTags(const std::vector<std::vector<SpanTag>>& ranks) {
  Timeline timeline;
  for (const auto& tags : ranks) {
    SpanTrack& track = timeline.ranks.emplace_back().compute;
    for (const SpanTag& tag : tags) {
      track.start.push_back(static_cast<Ns>(10 * track.start.size()));
      track.end.push_back(track.start.back() + 5);
      track.tags.push_back(tag);
    }
  }
  return timeline;
}

SpanTag tag(SpanKind kind, int stage, int microbatch) { return {kind, Stage(stage), Microbatch(microbatch), Rank(0)}; }

TEST(Matches, AreTheSameActionOfTheSameRankAndRepeatedOnesInOrder) {
  const SpanTag f0 = tag(SpanKind::Forward, 0, 0), f1 = tag(SpanKind::Forward, 0, 1), b0 = tag(SpanKind::Backward, 0, 0),
                g0 = tag(SpanKind::Forward, 3, 0);
  const SpanTag sum = tag(SpanKind::ReduceGrad, -1, -1);
  const Timeline predicted = trackOfTags({{f0, f1, f0, b0, f0, sum}, {f0}});
  const Timeline measured = trackOfTags({{f1, f0, g0, f0, sum}, {b0, f0}, {f0}});
  const Matches matches = matchSpans(predicted, measured);
  // The third forward of microbatch 0 and the backward were not measured.
  EXPECT_EQ(matches.measuredOf[0], (std::vector<std::int32_t>{1, 0, 3, -1, -1, 4}));
  EXPECT_EQ(matches.predictedOf[0], (std::vector<std::int32_t>{1, 0, -1, 2, 5}));
  EXPECT_EQ(matches.measuredOf[1], (std::vector<std::int32_t>{1}));
  EXPECT_EQ(matches.predictedOf[1], (std::vector<std::int32_t>{-1, 0}));
  EXPECT_EQ(matches.predictedOf[2], (std::vector<std::int32_t>{-1}));
}

TEST(Matches, AreAWholeBackwardAndTheInputGradientOfASplitOne) {
  const SpanTag b0 = tag(SpanKind::Backward, 0, 0), b1 = tag(SpanKind::Backward, 0, 1), i0 = tag(SpanKind::BackwardInput, 0, 0),
                w0 = tag(SpanKind::BackwardWeight, 0, 0);
  const Matches matches = matchSpans(trackOfTags({{b0, b1}}), trackOfTags({{i0, w0, b1}}));
  EXPECT_EQ(matches.measuredOf[0], (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(matches.predictedOf[0], (std::vector<std::int32_t>{0, -1, 1}));
  EXPECT_EQ(matchSpans(trackOfTags({{i0, w0, b1}}), trackOfTags({{b0, b1}})).measuredOf[0], (std::vector<std::int32_t>{0, -1, 1}));
}

TEST(Matches, NumbersFarApartCostNoMoreThanOthers) {
  const SpanTag near = tag(SpanKind::Forward, 0, 3), far = tag(SpanKind::Forward, 0, 2'000'000'000);
  const Matches matches = matchSpans(trackOfTags({{near, far}}), trackOfTags({{far, near}}));
  EXPECT_EQ(matches.measuredOf[0], (std::vector<std::int32_t>{1, 0}));
}

}  // namespace
}  // namespace pw::gui
