#include "app/gui/timeline/drawing/viewport.h"

#include <QImage>
#include <QPainter>
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "app/gui/timeline/drawing/ruler.h"

namespace pw::gui {
namespace {

TEST(Viewport, TimesAndPixelsGoThereAndBack) {
  const Viewport view{1000, 2.5, 400};
  EXPECT_EQ(view.xOf(1000), 0);
  EXPECT_EQ(view.xOf(1025), 10);
  EXPECT_EQ(view.timeOf(10), 1025);
  EXPECT_EQ(view.end(), 2000);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Viewport v{static_cast<double>(random() % 1'000'000'000), 0.5 + static_cast<double>(random() % 1000), 1000};
    const auto time = static_cast<Ns>(random() % 2'000'000'000);
    EXPECT_NEAR(static_cast<double>(v.timeOf(v.xOf(time))), static_cast<double>(time), 1);
  }
}

TEST(Viewport, FittedLeavesMarginsOnBothSides) {
  const Viewport view = fitted(500, 2500, 1016, 8);  // 1000 pixels for 2000 ns
  EXPECT_DOUBLE_EQ(view.nsPerPixel, 2);
  EXPECT_DOUBLE_EQ(view.xOf(500), 8);
  EXPECT_DOUBLE_EQ(view.xOf(2500), 1008);
  EXPECT_EQ(view.width, 1016);
}

TEST(Viewport, FittedToNothingOrToAlmostNothingIsStillAView) {
  for (const Ns length : {Ns{0}, Ns{1}}) {
    const Viewport view = fitted(700, 700 + length, 416, 8);
    EXPECT_GT(view.nsPerPixel, 0);
    EXPECT_GE(view.xOf(700), 0);
    EXPECT_LE(view.xOf(700 + length), 416);
  }
  EXPECT_GT(fitted(0, 100, 1, 8).nsPerPixel, 0) << "narrower than its margins";
}

TEST(Viewport, ZoomKeepsTheTimeUnderTheCursor) {
  const Viewport view{0, 1000, 800};
  for (const double x : {0.0, 123.0, 800.0}) {
    for (const double factor : {0.5, 0.9, 1.3}) {
      const Viewport closer = zoomed(view, x, factor, 1'000'000);
      EXPECT_NEAR(closer.start + x * closer.nsPerPixel, view.start + x * view.nsPerPixel, 1e-6);
      EXPECT_DOUBLE_EQ(closer.nsPerPixel, 1000 * factor);
      EXPECT_EQ(closer.width, 800);
    }
  }
}

TEST(Viewport, ZoomEndsAtA64thOfANanosecondAndAtFourTimesTheTimeline) {
  Viewport view{0, 1000, 800};
  for (int i = 0; i < 200; ++i) view = zoomed(view, 400, 0.5, 1'000'000);
  EXPECT_DOUBLE_EQ(view.nsPerPixel, 1.0 / 64);
  for (int i = 0; i < 200; ++i) view = zoomed(view, 400, 2, 1'000'000);
  EXPECT_DOUBLE_EQ(view.nsPerPixel, 4.0 * 1'000'000 / 800);
}

TEST(Viewport, PanningStopsWhereATenthOfTheWidthStillShowsTheTimeline) {
  const Viewport view{0, 10, 1000};
  EXPECT_DOUBLE_EQ(panned(view, 25, 100'000).start, 250);
  // A tenth of the width is 100 pixels: 1000 ns.
  EXPECT_DOUBLE_EQ(panned(view, 1e9, 100'000).start, 99'000);
  EXPECT_DOUBLE_EQ(panned(view, -1e9, 100'000).start, -9'000);
}

TEST(Viewport, PanningByWholePixelsStaysOnWholePixelsAtTheEndsToo) {
  const Viewport view{17.3, 3.7, 1000};
  for (const double pixels : {5.0, -9000.0, 123456.0}) {
    const double moved = (panned(view, pixels, 40'000).start - view.start) / view.nsPerPixel;
    EXPECT_NEAR(moved, std::round(moved), 1e-6) << pixels;
  }
}

TEST(Viewport, TicksAreRoundAndFarEnoughApart) {
  EXPECT_EQ(tickStep({0, 1, 100}, 90), 100);
  EXPECT_EQ(tickStep({0, 1, 100}, 100), 100);
  EXPECT_EQ(tickStep({0, 1, 100}, 101), 200);
  EXPECT_EQ(tickStep({0, 1, 100}, 201), 500);
  EXPECT_EQ(tickStep({0, 1, 100}, 501), 1000);
  EXPECT_EQ(tickStep({0, 1.0 / 64, 100}, 10), 1) << "no step is shorter than a nanosecond";
  for (double ns = 0.02; ns < 1e12; ns *= 1.7) {
    const Ns step = tickStep({0, ns, 100}, 90);
    EXPECT_GE(static_cast<double>(step), 90 * ns);
    EXPECT_LE(static_cast<double>(step), std::max(1.0, 2.5 * 90 * ns)) << "1, 2, 5, 10: no gap is wider";
  }
}

TEST(Ruler, TicksAreNamedInTheLargestUnitThatTellsThemApart) {
  EXPECT_EQ(tickLabel(0, 5'000'000, 40'000'000), QString::fromUtf8("0 ms"));
  EXPECT_EQ(tickLabel(5'000'000, 5'000'000, 40'000'000), QString::fromUtf8("5 ms"));
  EXPECT_EQ(tickLabel(1'250'000, 50'000, 3'000'000), QString::fromUtf8("1.25 ms"));
  EXPECT_EQ(tickLabel(1'234'567'000, 1000, 2'000'000'000), QString::fromUtf8("1234.567 ms"));
  EXPECT_EQ(tickLabel(1'500'000'000, 500'000'000, 2'000'000'000), QString::fromUtf8("1.5 s"));
  EXPECT_EQ(tickLabel(120, 20, 900), QString::fromUtf8("120 ns"));
  EXPECT_EQ(tickLabel(1500, 500, 9000), QString::fromUtf8("1.5 µs"));
}

TEST(Ruler, LeavesOutALabelThatEndsOutside) {
  const Scene scene;
  Viewport view{0, 10'000, 800};
  const int apart = static_cast<int>(static_cast<double>(rulerStep(view, scene)) / view.nsPerPixel);
  view.width = 5 * apart + 10;  // the last tick is 10 pixels before the end
  QImage image(view.width, 26, QImage::Format_RGB32);
  QPainter painter(&image);
  paintRuler(painter, image.rect(), scene, view, theme(false));
  painter.end();
  const auto isDrawnAfter = [&](int tick) {  // above the smaller ticks
    for (int x = tick * apart + 3; x < std::min(view.width, (tick + 1) * apart - 3); ++x) {
      for (int y = 0; y < 20; ++y) {
        if (image.pixel(x, y) != image.pixel(0, 0)) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(isDrawnAfter(4));
  EXPECT_FALSE(isDrawnAfter(5));
}

}  // namespace
}  // namespace pw::gui
