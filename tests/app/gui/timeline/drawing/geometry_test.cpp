#include "app/gui/timeline/drawing/geometry.h"

#include <gtest/gtest.h>

#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {
namespace {

/// 1F1B of 4 ranks and 8 microbatches, 10 µs a pixel from time 0 on, on a canvas of 1000 × 600 pixels.
class Places : public testing::Test {
 protected:
  Places() {
    const auto prediction = smallPrediction();
    scene.predicted = std::shared_ptr<const Timeline>(prediction, &prediction->timeline);
    for (int r = 0; r < 4; ++r) scene.ranks.push_back({Rank(r)});
  }
  /// The points of the canvas, after everything that decides where they are was set.
  [[nodiscard]] Geometry geometry(int scroll = 0) {
    layout = layOutRows(scene);
    return {scene, layout, {0, 10'000, 1000 - labelWidth(scene)}, scroll, QRect(0, 0, 1000, 600)};
  }
  [[nodiscard]] const Row& computeRow(int rank) const {
    return layout.rows[rowOf(layout, {Source::Predicted, {Rank(rank), TrackKind::Compute, 0}}).value()];
  }

  Scene scene;
  RowLayout layout;
};

TEST_F(Places, RowsLieRightOfTheLabelsAndBelowTheRuler) {
  const Geometry where = geometry();
  EXPECT_EQ(where.tracks(), QRect(labelWidth(scene), rulerHeight(scene), 1000 - labelWidth(scene), 600 - rulerHeight(scene)));
  EXPECT_EQ(where.timeAt(labelWidth(scene)), 0);
  EXPECT_EQ(where.timeAt(labelWidth(scene) + 250), 250 * 10'000);
}

TEST_F(Places, APointBelongsToARankWhereItsRowsAreByNow) {
  const Geometry still = geometry();
  const int top = rulerHeight(scene);
  EXPECT_FALSE(still.rankAt(top - 1)) << "in the ruler";
  for (int r = 0; r < 4; ++r) EXPECT_EQ(still.rankAt(top + computeRow(r).top), Rank(r));
  EXPECT_FALSE(still.rankAt(top + layout.height + 50)) << "below the rows";
  EXPECT_FALSE(still.rankAt(599)) << "the last line belongs to none";
  const int down = computeRow(2).top;
  const Geometry scrolled = geometry(down);
  EXPECT_EQ(scrolled.rankAt(top), Rank(2)) << "so far down that its first row is the topmost";
  EXPECT_EQ(scrolled.topOf(computeRow(2)), top);
}

TEST_F(Places, PinnedRowsStayAndCoverTheOthers) {
  scene.ranks[3].pinned = true;
  const Geometry scrolled = geometry(40);
  const int top = rulerHeight(scene);
  EXPECT_EQ(scrolled.topOf(computeRow(3)), top + computeRow(3).top);
  EXPECT_EQ(scrolled.topOf(computeRow(1)), top + computeRow(1).top - 40);
  EXPECT_EQ(scrolled.rankAt(top + computeRow(3).top), Rank(3));
  const Geometry far = geometry(computeRow(1).top);  // rank 1 is as high as the pinned rows begin, and behind them
  EXPECT_EQ(far.rankAt(top + computeRow(3).top), Rank(3));
}

TEST_F(Places, TheFirstForwardOfARankIsWhereItsTimesAre) {
  // Rank 1 receives after a forward (1 ms), a transfer (0.2 ms) and a latency (0.1 ms), and then takes 1 ms: pixels 130 to 230.
  const Geometry where = geometry();
  const int left = labelWidth(scene), top = rulerHeight(scene);
  const auto rect = where.rectOf(Rank(1), 1'300'000, 2'300'000);
  ASSERT_TRUE(rect);
  EXPECT_EQ(*rect, QRectF(left + 130, top + computeRow(1).top, 100, computeRow(1).height));
  const Hit hit = where.hitAt(rect->center().toPoint());
  EXPECT_EQ(hit.span, (SourcedSpan{Source::Predicted, {Rank(1), TrackKind::Compute, 0}}));
  EXPECT_FALSE(where.hitAt({left + 129, static_cast<int>(rect->center().y())}).span) << "it waits until then";
}

TEST_F(Places, WhatIsOutOfSightHasNoRectangleAndWhatReachesBeyondIsCut) {
  const Geometry where = geometry();
  const int width = where.view.width;
  EXPECT_FALSE(where.rectOf(Rank(4), 0, 1000)) << "no such rank";
  const Ns right = width * Ns{10'000};
  EXPECT_FALSE(where.rectOf(Rank(0), right + 10'000, right + 90'000));
  const auto all = where.rectOf(Rank(0), -1'000'000, right + 1'000'000);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->left(), labelWidth(scene) - 8);
  EXPECT_EQ(all->width(), width + 16);
  const auto instant = where.rectOf(Rank(0), 500'000, 500'000);
  ASSERT_TRUE(instant);
  EXPECT_EQ(instant->width(), 1) << "a pixel at least";
  EXPECT_FALSE(geometry(2000).rectOf(Rank(0), 0, 1'000'000)) << "scrolled away";
}

TEST(Revealing, MovesOnlyWhatIsOutOfSight) {
  const Viewport view{1000, 10, 100};  // 1000 to 2000 ns
  EXPECT_EQ(revealing(view, 1200, 1300), view);
  EXPECT_EQ(revealing(view, 1000, 1900), view);
  EXPECT_EQ(revealing(view, 2400, 2600).start, 2000) << "2500 ± 500: in the middle";
  EXPECT_EQ(revealing(view, 1950, 2050).start, 1500) << "part of it is not enough";
  EXPECT_EQ(revealing(view, 0, 100).start, -450);
  EXPECT_EQ(revealing(view, 1900, 3900), view) << "of what is longer than the view, a part is enough";
  EXPECT_EQ(revealing(view, 3000, 5000).start, 2900) << "else its beginning, a tenth from the left";
  EXPECT_EQ(revealing(view, 0, 950).start, -100);
}

}  // namespace
}  // namespace pw::gui
