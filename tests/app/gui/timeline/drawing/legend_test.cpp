#include "app/gui/timeline/drawing/legend.h"

#include <QImage>
#include <QPainter>
#include <algorithm>

#include <gtest/gtest.h>

#include "app/gui/timeline/drawing/rows.h"
#include "tests/app/gui/timeline/drawing/scenes.h"

namespace pw::gui {
namespace {

TEST(Legend, TextOfALegendFitsOrEndsInAnEllipsis) {
  const Scene scene = sceneOf(timelineOfSchedule("zbv", {4, 8, 8}));
  for (const int width : {30, 200, 1400}) {
    QImage image(width, 24, QImage::Format_RGB32);
    image.fill(Qt::magenta);
    QPainter painter(&image);
    paintLegend(painter, image.rect(), scene, theme(true));
    painter.end();
    EXPECT_NE(image.pixel(width - 1, 12), qRgb(255, 0, 255));
  }
}

/// How many coloured boxes a legend of this width has: columns without background, by line, counted where they begin.
int boxesIn(const Scene& scene, int width) {
  QImage image(width, legendHeight(scene, width), QImage::Format_RGB32);
  QPainter painter(&image);
  paintLegend(painter, image.rect(), scene, theme(false));
  painter.end();
  const auto isText = [](QRgb pixel) { return pixel == theme(false).text.rgb(); };
  const int lines = std::max(1, image.height() / 18);
  int boxes = 0;
  for (int line = 0; line < lines; ++line) {
    const int y = (image.height() - 18 * lines) / 2 + 18 * line + 9;
    int run = 0;
    for (int x = 0; x < width; ++x) {
      const bool isFilled = image.pixel(x, y) != theme(false).background.rgb() && !isText(image.pixel(x, y));
      run = isFilled ? run + 1 : 0;
      boxes += run == 12 ? 1 : 0;
    }
  }
  return boxes;
}

TEST(Legend, ALegendTakesTheLinesThatItsEntriesNeed) {
  Scene scene = sceneOf(timelineOfSchedule("zb-h1", {4, 4, 8}));  // F, I, W, two kinds of messages, bubble
  const int whole = legendHeight(scene, 1400);
  EXPECT_GT(legendHeight(scene, 420), whole);
  EXPECT_EQ(legendHeight(Scene{}, 420), 0);
  for (const int width : {1400, 420, 300}) EXPECT_EQ(boxesIn(scene, width), 6) << width;
  scene.colourBy = ColourBy::Stage;
  for (const int width : {1400, 420}) EXPECT_EQ(boxesIn(scene, width), 5) << "four stages and the bubble, " << width;
}

TEST(Legend, ALegendSaysWhatTheLineBelowMergedBlocksMeans) {
  // GPipe's forwards take half as long as its backwards: on one rank, of 300 microbatches, F are 300 of 900 units.
  const Scene scene = sceneOf(timelineOfSchedule("gpipe", {1, 1, 300}));
  EXPECT_EQ(boxesIn(scene, 1400), 3) << "a forward has more than a pixel: F, B, bubble";
  EXPECT_EQ(boxesIn(scene, 800), 4) << "800 pixels less the ranks' names, and 900 units";
}

TEST(Legend, ALegendHasMessagesWhereTheirRowsAreDrawn) {
  Scene scene = sceneOf(timelineOfSchedule("1f1b", {4, 4, 8}));
  const auto painted = [&] {
    QImage image(1400, 24, QImage::Format_RGB32);
    QPainter painter(&image);
    paintLegend(painter, image.rect(), scene, theme(false));
    painter.end();
    return image;
  };
  const QImage usual = painted();
  scene.showsCommunication = false;
  const QImage without = painted();
  EXPECT_NE(usual, without);
  scene.showsCommunication = true;
  scene.rowScale = leastRowScale(scene);  // too low for them
  EXPECT_EQ(painted(), without);
}

}  // namespace
}  // namespace pw::gui
