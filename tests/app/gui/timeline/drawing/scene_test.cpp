#include "app/gui/timeline/drawing/scene.h"
#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/ruler.h"
#include "app/gui/timeline/drawing/scene_painter.h"

#include <QBuffer>
#include <QImage>
#include <QPainter>
#include <QSvgGenerator>
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "app/gui/timeline/drawing/legend.h"
#include "app/gui/timeline/drawing/look.h"
#include "tests/app/gui/timeline/drawing/scenes.h"

namespace pw::gui {
namespace {

QImage paint(ScenePainter& painter, const Scene& scene, const Viewport& view, int height = 400, int scroll = 0) {
  QImage image(view.width + labelWidth(scene), height, QImage::Format_RGB32);
  image.fill(Qt::magenta);
  QPainter to(&image);
  painter.paint(to, image.rect(), scene, layOutRows(scene), view, scroll, theme(false));
  to.end();
  return image;
}

QImage paint(const Scene& scene, const Viewport& view, int height = 400, int scroll = 0) {
  ScenePainter painter;
  return paint(painter, scene, view, height, scroll);
}

// ---- Rows ----

TEST(Rows, LieBelowEachOtherWithoutTouching) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {3, 3, 4}));
  const RowLayout layout = layOutRows(scene);
  ASSERT_EQ(layout.rows.size(), 9u) << "compute, messages and memory of three ranks";
  for (std::size_t i = 1; i < layout.rows.size(); ++i)
    EXPECT_GT(layout.rows[i].top, layout.rows[i - 1].top + layout.rows[i - 1].height - 1);
  EXPECT_GE(layout.height, layout.rows.back().top + layout.rows.back().height);
  EXPECT_EQ(layout.pinnedHeight, 0);
  scene.showsCommunication = scene.showsMemory = false;
  EXPECT_EQ(layOutRows(scene).rows.size(), 3u);
}

TEST(Rows, PinnedRanksComeFirstAndCollapsedOnesShowComputeOnly) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {3, 3, 4}));
  const int usual = layOutRows(scene).rows[0].height;
  scene.ranks[2].pinned = true;
  scene.ranks[0].collapsed = true;
  const RowLayout layout = layOutRows(scene);
  ASSERT_EQ(layout.rows.size(), 3u + 1u + 3u);
  EXPECT_EQ(layout.rows[0].rank, Rank(2));
  EXPECT_TRUE(layout.rows[0].pinned);
  EXPECT_EQ(layout.rows[3].rank, Rank(0));
  EXPECT_LT(layout.rows[3].height, usual * 3 / 5);
  EXPECT_GE(layout.pinnedHeight, layout.rows[2].top + layout.rows[2].height);
  EXPECT_GE(layout.rows[3].top, layout.pinnedHeight);
}

TEST(Rows, OfWhatIsNotKnownTakeNoRoom) {
  const auto kinds = [](const Scene& scene) {
    std::set<Row::Kind> shown;
    for (const Row& row : layOutRows(scene).rows) shown.insert(row.kind);
    return shown;
  };
  auto timeline = std::make_shared<Timeline>(*timelineOfSchedule("1f1b", {3, 3, 4}));
  timeline->peak = 0;
  Scene scene = sceneOf(timeline);
  EXPECT_EQ(kinds(scene), (std::set{Row::Kind::Compute, Row::Kind::Communication}));
  for (auto& rank : timeline->ranks) rank.communication = {};
  EXPECT_EQ(kinds(scene), std::set{Row::Kind::Compute});
  EXPECT_LT(layOutRows(scene).height, layOutRows(sceneOf(timelineOfSchedule("1f1b", {3, 3, 4}))).height / 2);
  scene.measured = timelineOfSchedule("1f1b", {3, 3, 4});
  EXPECT_EQ(kinds(scene).size(), 3u) << "as soon as one timeline has them";
}

TEST(Rows, LowRanksLeaveOutMemoryThenMessagesAndStayEightPixelsHigh) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {4, 4, 4}));
  const auto kinds = [&](double scale) {
    scene.rowScale = scale;
    std::set<Row::Kind> shown;
    for (const Row& row : layOutRows(scene).rows) shown.insert(row.kind);
    return shown.size();
  };
  // Usually 28 + 13 + 30 of rows and 2 + 2 + 9 of gaps, in all 84; without memory 52, and with compute alone 37.
  EXPECT_EQ(layOutRows(scene).height, 4 + 4 * 84);
  EXPECT_EQ(kinds(0.75), 3u);
  EXPECT_EQ(kinds(0.6), 2u) << "50 of 84";
  EXPECT_EQ(kinds(0.4), 1u) << "34 of 52";
  EXPECT_DOUBLE_EQ(leastRowScale(scene), 8.0 / 84);
  EXPECT_EQ(kinds(leastRowScale(scene)), 1u);
  EXPECT_EQ(layOutRows(scene).height, 4 + 4 * 8);
  const int least = layOutRows(scene).height;
  EXPECT_EQ(kinds(0.01), 1u);
  EXPECT_EQ(layOutRows(scene).height, least);
  scene.ranks[1].collapsed = true;
  EXPECT_EQ(layOutRows(scene).height, least) << "a collapsed rank too";
  int before = 0;
  for (double scale = 0.05; scale <= 3; scale += 0.05) {
    scene.rowScale = scale;
    const int height = layOutRows(scene).height;
    EXPECT_GE(height, before) << scale;
    before = height;
  }
}

TEST(Rows, FitAHeightWhereTheyHaveRoom) {
  Scene scene = sceneOf(timelineOfSchedule("gpipe", {16, 16, 4}));
  for (const int height : {300, 700, 1300, 3000}) {
    scene.rowScale = fittedRowScale(scene, height);
    const int used = layOutRows(scene).height;
    EXPECT_LE(used, height);
    EXPECT_GT(used, height - 16 * 5) << "rounded to pixels in each row and gap";
  }
  EXPECT_EQ(fittedRowScale(scene, 10'000), kMostRowScale);
  EXPECT_NEAR(fittedRowScale(scene, 100), leastRowScale(scene), 1e-9) << "16 ranks of 8 pixels do not";
}

TEST(Rows, FindAPlaceOfARankAgainAtAnotherHeight) {
  Scene scene = sceneOf(timelineOfSchedule("gpipe", {8, 8, 4}));
  scene.ranks[0].pinned = true;
  const RowLayout usual = layOutRows(scene);
  const int line = lineOf(usual, {Rank(5), 0.25});
  const auto place = rankPlaceAt(usual, line);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, Rank(5));
  EXPECT_NEAR(place->share, 0.25, 0.01);
  scene.rowScale = 2;
  const RowLayout twice = layOutRows(scene);
  EXPECT_EQ(rankPlaceAt(twice, lineOf(twice, *place))->rank, Rank(5));
  EXPECT_EQ(rankPlaceAt(usual, -50)->rank, Rank(1)) << "a pinned rank does not scroll";
  EXPECT_EQ(rankPlaceAt(usual, 100'000)->rank, Rank(7));
  for (RankView& rank : scene.ranks) rank.pinned = true;
  EXPECT_FALSE(rankPlaceAt(layOutRows(scene), 10));
}

TEST(Rows, OfEightPixelsAreNamedWhereNamesHaveRoom) {
  Scene scene = sceneOf(timelineOfSchedule("gpipe", {32, 32, 2}));
  scene.rowScale = 0;
  const QImage image = paint(scene, fitted(0, scene.predicted->end, 400), 300);
  // Lines of the labels' column with text in it: lines without any lie between two names.
  int names = 0;
  bool wasText = false;
  for (int y = rulerHeight(scene); y < image.height(); ++y) {
    bool isText = false;
    for (int x = 4; x < labelWidth(scene) - 2; ++x) isText = isText || qGray(image.pixel(x, y)) < 120;
    names += isText && !wasText ? 1 : 0;
    wasText = isText;
  }
  EXPECT_GE(names, 12);
  EXPECT_LE(names, 17) << "every other one of 32";
}

TEST(Rows, WithAMeasuredTimelineBelowHasTwoComputeRowsAndOverHasOne) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {2, 2, 4}));
  scene.measured = scene.predicted;
  const auto computeRows = [&] {
    std::vector<Source> sources;
    for (const Row& row : layOutRows(scene).rows) {
      if (row.kind == Row::Kind::Compute && row.rank == Rank(1)) sources.push_back(row.source);
    }
    return sources;
  };
  EXPECT_EQ(computeRows(), (std::vector{Source::Predicted, Source::Measured}));
  scene.arrangement = Arrangement::Over;
  EXPECT_EQ(computeRows(), std::vector{Source::Measured});
  scene.measured.reset();
  EXPECT_EQ(computeRows(), std::vector{Source::Predicted});
  scene.predicted.reset();
  EXPECT_TRUE(layOutRows(scene).rows.empty());
  EXPECT_EQ(layOutRows(scene).height, 0);
}

TEST(Rows, GrowWithTheText) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {2, 2, 4}));
  const int height = layOutRows(scene).height, width = labelWidth(scene), ruler = rulerHeight(scene);
  scene.zoomText = 2;
  EXPECT_NEAR(layOutRows(scene).height, 2 * height, 12);
  EXPECT_NEAR(labelWidth(scene), 2 * width, 1);
  EXPECT_NEAR(rulerHeight(scene), 2 * ruler, 1);
}

// ---- Hits ----

/// Whether a pixel is of this fill, or of a label on it.
bool shows(QRgb pixel, const Fill& fill, const Look& look) {
  if (pixel == fill.base || pixel == fill.mark) return true;
  const QRgb text = look.textOn(fill);
  for (int share = 1; share <= 64; ++share) {
    const QRgb mix = mixed(fill.base, text, share / 64.0);
    if (std::abs(qRed(mix) - qRed(pixel)) < 4 && std::abs(qGreen(mix) - qGreen(pixel)) < 4 && std::abs(qBlue(mix) - qBlue(pixel)) < 4)
      return true;
  }
  return false;
}

TEST(HitTest, AgreesWithWhatIsPaintedAtEveryPixelOfAComputeRow) {
  for (const char* const name : {"1f1b", "zbv", "dualpipev"}) {
    const bool two = std::string(name) != "1f1b";
    const Scene scene = sceneOf(timelineOfSchedule(name, {4, two ? 8 : 4, 10}));
    const Look look(scene, theme(false));
    // From blocks tens of pixels wide to some in a pixel.
    for (const int width : {1500, 400, 60}) {
      const Viewport view = fitted(0, scene.predicted->end, width, 3);
      const QImage image = paint(scene, view);
      const RowLayout layout = layOutRows(scene);
      int blocks = 0, bubbles = 0;
      for (const Row& row : layout.rows) {
        if (row.kind != Row::Kind::Compute) continue;
        for (const int y : {row.top + 3, row.top + row.height - 5}) {
          for (int x = 0; x < width; ++x) {
            const Hit hit = hitTest(scene, layout, view, x, y, 0);
            ASSERT_TRUE(hit.row);
            const QRgb pixel = image.pixel(labelWidth(scene) + x, rulerHeight(scene) + y);
            if (hit.span) {
              const SpanTrack& track = trackOf(*scene.predicted, hit.span->span);
              const auto i = static_cast<std::size_t>(hit.span->span.index);
              const double wide = view.xOf(track.end[i]) - view.xOf(track.start[i]);
              if (wide >= 3 && view.xOf(track.end[i]) - x < 2) continue;  // the last column of a block separates it from the next
              EXPECT_TRUE(shows(pixel, look.of(track.tags[i]), look)) << name << " " << width << ": " << x << ", " << y;
              ++blocks;
            } else if (hit.bubble) {
              EXPECT_TRUE(shows(pixel, look.bubble(), look)) << name << " " << width << ": " << x << ", " << y;
              ++bubbles;
            }
          }
        }
      }
      EXPECT_GT(blocks, width);
      EXPECT_GT(bubbles, 0);
    }
  }
}

TEST(HitTest, OfASlotTheUpperHalfIsTheForwardAndTheLowerTheBackward) {
  const Scene scene = sceneOf(timelineOfSchedule("dualpipev", {4, 8, 10}));
  const RowLayout layout = layOutRows(scene);
  const SpanTrack& track = scene.predicted->ranks[0].compute;
  std::size_t slot = 0;
  while (slot < track.size() && !isSlotAt(track, slot)) ++slot;
  ASSERT_LT(slot, track.size());
  const Viewport view = fitted(0, scene.predicted->end, 2000);
  const int x = static_cast<int>(view.xOf((track.start[slot] + track.end[slot]) / 2));
  const Row& row = layout.rows[0];
  EXPECT_EQ(hitTest(scene, layout, view, x, row.top + 2, 0).span->span.index, static_cast<int>(slot));
  EXPECT_EQ(hitTest(scene, layout, view, x, row.top + row.height - 2, 0).span->span.index, static_cast<int>(slot) + 1);
}

TEST(HitTest, FindsMessagesInTheLaneOfTheirDirection) {
  const Scene scene = sceneOf(timelineOfSchedule("1f1b", {4, 4, 10}));
  const RowLayout layout = layOutRows(scene);
  const Row& row = layout.rows[4];
  ASSERT_EQ(row.kind, Row::Kind::Communication);
  ASSERT_EQ(row.rank, Rank(1));
  const Viewport view = fitted(0, scene.predicted->end, 3000);
  const SpanTrack& track = scene.predicted->ranks[1].communication;
  std::set<SpanKind> kinds;
  for (std::size_t i = 0; i < track.size(); ++i) {
    const int x = static_cast<int>(view.xOf((track.start[i] + track.end[i]) / 2));
    const int y = row.top + (track.tags[i].kind == SpanKind::SendForward ? 1 : row.height - 2);
    const Hit hit = hitTest(scene, layout, view, x, y, 0);
    ASSERT_TRUE(hit.span) << i;
    EXPECT_EQ(hit.span->span, (SpanRef{Rank(1), TrackKind::Communication, static_cast<std::int32_t>(i)}));
    kinds.insert(track.tags[i].kind);
  }
  EXPECT_EQ(kinds.size(), 2u);
}

TEST(HitTest, ScrolledRowsMoveAndPinnedOnesStay) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {8, 8, 8}));
  scene.ranks[5].pinned = true;
  const RowLayout layout = layOutRows(scene);
  const Viewport view = fitted(0, scene.predicted->end, 800);
  const Row& third = layout.rows[6];
  const int scroll = 70;
  EXPECT_EQ(hitTest(scene, layout, view, 10, third.top - scroll + 1, scroll).row->rank, third.rank);
  EXPECT_EQ(hitTest(scene, layout, view, 10, layout.rows[0].top + 1, scroll).row->rank, Rank(5));
  EXPECT_FALSE(hitTest(scene, layout, view, 10, layout.height + 5, 0).row);
  EXPECT_EQ(hitTest(scene, layout, view, 10, layout.height + 5, 0).time, static_cast<Ns>(std::floor(view.start + 10.5 * view.nsPerPixel)));
}

// ---- Painting ----

void expectSame(const QImage& a, const QImage& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (int y = 0; y < a.height(); ++y) {
    for (int x = 0; x < a.width(); ++x) ASSERT_EQ(a.pixel(x, y), b.pixel(x, y)) << what << ": pixel " << x << ", " << y;
  }
}

TEST(ScenePainter, MovedByWholePixelsIsPixelForPixelWhatIsPaintedAnew) {
  for (const char* const name : {"1f1b", "zbv"}) {
    Scene scene = sceneOf(timelineOfSchedule(name, {3, std::string(name) == "zbv" ? 6 : 3, 40}));
    scene.memoryLimits.assign(scene.predicted->ranks.size(), scene.predicted->peak * 9 / 10);
    for (const double zoom : {1.0, 0.3, 0.05}) {
      ScenePainter painter;
      Viewport view = zoomed(fitted(0, scene.predicted->end, 700), 300, zoom, scene.predicted->end);
      const Viewport first = view;
      (void)paint(painter, scene, view);
      for (const int pixels : {13, -40, 200, -5, 1, 650}) {
        view = panned(view, pixels, scene.predicted->end);
        const QImage moved = paint(painter, scene, view);
        // Anew, from the same origin: where patterns begin depends on it.
        ScenePainter fresh;
        (void)paint(fresh, scene, first);
        const Viewport far = panned(first, 5000, scene.predicted->end);
        (void)paint(fresh, scene, far);
        expectSame(moved, paint(fresh, scene, view), std::string(name) + " zoom " + std::to_string(zoom) + ", " + std::to_string(pixels));
      }
    }
  }
}

TEST(ScenePainter, ATimelineFilledAgainInPlaceIsPaintedAnew) {
  auto timeline = std::make_shared<Timeline>(*timelineOfSchedule("1f1b", {3, 3, 6}));
  const Scene scene = sceneOf(timeline);
  const Viewport view = fitted(0, timeline->end, 700);
  ScenePainter painter;
  const QImage before = paint(painter, scene, view);
  *timeline = *timelineOfSchedule("1f1b", {3, 3, 6}, 900);
  const QImage after = paint(painter, scene, view);
  EXPECT_NE(before, after);
  EXPECT_EQ(after, paint(scene, view));
}

TEST(ScenePainter, EveryPixelIsPaintedAlsoWithoutAnyTimeline) {
  const Scene nothing;
  for (const Scene& scene : {nothing, sceneOf(timelineOfSchedule("1f1b", {2, 2, 2}))}) {
    const QImage image = paint(scene, {0, 10, 500});
    for (int y = 0; y < image.height(); ++y) {
      for (int x = 0; x < image.width(); ++x) ASSERT_NE(image.pixel(x, y), qRgb(255, 0, 255)) << x << ", " << y;
    }
  }
}

TEST(ScenePainter, WhatIsNotHighlightedIsFaint) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {2, 2, 4}));
  scene.dimsOthers = true;
  scene.highlighted = {{Source::Predicted, {Rank(0), TrackKind::Compute, 1}}};
  const Viewport view = fitted(0, scene.predicted->end, 1200);
  const QImage image = paint(scene, view);
  const Look look(scene, theme(false));
  const SpanTrack& track = scene.predicted->ranks[0].compute;
  for (std::size_t i = 0; i < track.size(); ++i) {
    const int x = labelWidth(scene) + static_cast<int>(view.xOf(track.start[i])) + 4;
    const QRgb pixel = image.pixel(x, rulerHeight(scene) + layOutRows(scene).rows[0].top + 3);
    const Fill fill = i == 1 ? look.of(track.tags[i]) : look.dimmed(look.of(track.tags[i]));
    EXPECT_TRUE(pixel == fill.base || pixel == fill.mark) << i;
  }
}

TEST(ScenePainter, DifferencesAreColouredByTheirSign) {
  const auto predicted = timelineOfSchedule("1f1b", {2, 2, 4});
  auto measured = std::make_shared<Timeline>(*predicted);
  // The first forward of rank 0 takes half as long again; there is room after the last one of the warm-up.
  measured->ranks[0].compute.end[1] += 500;
  Scene scene = sceneOf(predicted);
  scene.measured = measured;
  scene.differences = true;
  const Viewport view = fitted(0, predicted->end, 1200);
  const QImage image = paint(scene, view);
  const Row row = layOutRows(scene).rows[1];
  ASSERT_EQ(row.source, Source::Measured);
  const auto pixelOf = [&](std::size_t i) {
    return image.pixel(labelWidth(scene) + static_cast<int>(view.xOf(measured->ranks[0].compute.start[i])) + 4,
                       rulerHeight(scene) + row.top + 3);
  };
  const Look look(scene, theme(false));
  EXPECT_EQ(pixelOf(0), look.ofDifference(0.0).base);
  EXPECT_EQ(pixelOf(1), look.ofDifference(0.5).base);
  EXPECT_NE(look.ofDifference(0.5).base, look.ofDifference(0.0).base);
  EXPECT_NE(look.ofDifference(-0.5).base, look.ofDifference(0.5).base);
}

TEST(ScenePainter, WhereSplitsDifferNoBlockHasADifferenceAndTheLegendSaysWhy) {
  const auto predicted = timelineOfSchedule("1f1b", {2, 2, 4});
  auto measured = std::make_shared<Timeline>(*predicted);
  measured->ranks[0].compute.end[1] += 500;
  Scene scene = sceneOf(predicted);
  scene.measured = measured;
  scene.differences = true;
  const Viewport view = fitted(0, predicted->end, 1200);
  ScenePainter painter;  // the same for both: what it keeps is of the splits, too
  const auto colours = [&] {
    const QImage image = paint(painter, scene, view);
    const Row row = layOutRows(scene).rows[1];
    std::vector<QRgb> found;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
      found.push_back(image.pixel(labelWidth(scene) + static_cast<int>(view.xOf(measured->ranks[0].compute.start[i])) + 4,
                                  rulerHeight(scene) + row.top + 3));
    return found;
  };
  const Fill unknown = Look(scene, theme(false)).ofDifference(std::nullopt);
  const auto isUnknown = [&](QRgb colour) { return colour == unknown.base || colour == unknown.mark; };
  EXPECT_TRUE(std::ranges::none_of(colours(), isUnknown));
  const auto words = [&] {
    QSvgGenerator svg;
    QBuffer text;
    svg.setOutputDevice(&text);
    QPainter legend(&svg);
    paintLegend(legend, QRect(0, 0, 900, 40), scene, theme(false));
    legend.end();
    return text.data();
  };
  EXPECT_FALSE(words().contains("the splits differ"));
  scene.comparesTimes = false;
  EXPECT_TRUE(std::ranges::all_of(colours(), isUnknown));
  EXPECT_TRUE(words().contains("the splits differ"));
}

TEST(ScenePainter, ARankThatIsNotPredictedHasNoDifferences) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {1, 1, 4}));
  const auto measured = timelineOfSchedule("1f1b", {2, 2, 4});
  scene.measured = measured;
  scene.ranks = {{Rank(0)}, {Rank(1)}};
  scene.differences = true;
  const Viewport view = fitted(0, measured->end, 1200);
  const QImage image = paint(scene, view);
  const auto rows = layOutRows(scene).rows;
  const auto row = std::ranges::find_if(
      rows, [](const Row& r) { return r.rank == Rank(1) && r.kind == Row::Kind::Compute && r.source == Source::Measured; });
  ASSERT_NE(row, rows.end());
  const Fill unknown = Look(scene, theme(false)).ofDifference(std::nullopt);
  const QRgb colour = image.pixel(labelWidth(scene) + static_cast<int>(view.xOf(measured->ranks[1].compute.start[0])) + 4,
                                  rulerHeight(scene) + row->top + 3);
  EXPECT_TRUE(colour == unknown.base || colour == unknown.mark);
}

TEST(ScenePainter, TheLineBelowMergedBlocksIsFaintWhereTheyAre) {
  Scene scene = sceneOf(timelineOfSchedule("gpipe", {1, 1, 300}));
  scene.showsCommunication = scene.showsMemory = false;
  const Viewport view = fitted(0, scene.predicted->end, 100);
  const auto contrast = [&] {
    const QImage image = paint(scene, view);
    const Row row = layOutRows(scene).rows.front();
    const int x = labelWidth(scene) + 20, bottom = rulerHeight(scene) + row.top + row.height - 1;
    return std::abs(qGray(image.pixel(x, bottom)) - qGray(image.pixel(x, bottom - row.height / 2)));
  };
  const int usual = contrast();
  EXPECT_GT(usual, 20) << "the line is there";
  scene.dimsOthers = true;
  EXPECT_LT(contrast(), usual);
}

TEST(RowNames, OfMemoryAreThePeaksOfBothTimelines) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {2, 2, 8}));
  const auto memoryNames = [&](int most) {
    for (const Row& row : layOutRows(scene).rows) {
      if (row.kind == Row::Kind::Memory) return rowNames(scene, row, most).join(QStringLiteral(" | "));
    }
    return QString();
  };
  // Rank 0 of 1F1B holds as many microbatches of 100 bytes as there are ranks, of GPipe all of them.
  EXPECT_EQ(memoryNames(2), "peak 200 B");
  scene.measured = timelineOfSchedule("gpipe", {2, 2, 8});
  scene.predictedName = "this plan";
  scene.measuredName = "plan B";
  EXPECT_EQ(memoryNames(2), "this plan 200 B | plan B 800 B");
  EXPECT_EQ(memoryNames(1), "plan B 800 B") << "the filled curve is that of plan B";
  scene.arrangement = Arrangement::Above;
  EXPECT_EQ(memoryNames(2), "plan B 800 B | this plan 200 B");
}

// ---- Labels ----

TEST(ScenePainter, LikeBlocksOfARankAllHaveLabelsOrNone) {
  const Scene scene = sceneOf(timelineOfSchedule("gpipe", {1, 1, 12}));  // F0 to F11, of one width
  const SpanTrack& track = scene.predicted->ranks[0].compute;
  const Row row = layOutRows(scene).rows.front();
  std::set<bool> seen;
  for (double width = 12; width < 40; width += 0.3) {  // pixels of a block
    const Viewport view{0, 1000 / width, 1500};
    const QImage image = paint(scene, view);
    std::set<bool> labelled;
    for (std::size_t i = 0; i < track.size(); ++i) {
      if (track.tags[i].kind != SpanKind::Forward) continue;
      std::set<QRgb> colours;  // within, without its edges
      const int left = labelWidth(scene) + static_cast<int>(view.xOf(track.start[i])) + 3, top = rulerHeight(scene) + row.top + 3;
      const int right = labelWidth(scene) + static_cast<int>(view.xOf(track.end[i])) - 3;
      for (int x = left; x < right; ++x)
        for (int y = top; y < top + row.height - 6; ++y) colours.insert(image.pixel(x, y));
      labelled.insert(colours.size() > 1);
    }
    EXPECT_EQ(labelled.size(), 1u) << width << " pixels";
    seen.insert(labelled.begin(), labelled.end());
  }
  EXPECT_EQ(seen.size(), 2u) << "narrow ones have none, wide ones have";
}

}  // namespace
}  // namespace pw::gui
