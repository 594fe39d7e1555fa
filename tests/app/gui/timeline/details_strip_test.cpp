#include "app/gui/timeline/details_strip.h"

#include <gtest/gtest.h>

#include <QAbstractTextDocumentLayout>
#include <QTest>
#include <QTextBlock>
#include <QTextLayout>
#include <algorithm>
#include <vector>

namespace pw::gui {
namespace {

/// The edges of its lines, from the top of what it shows [pixels].
std::vector<double> edgesOf(const DetailsStrip& strip) {
  std::vector<double> edges{strip.document()->documentMargin()};
  for (QTextBlock block = strip.document()->begin(); block.isValid(); block = block.next()) {
    (void)strip.document()->documentLayout()->blockBoundingRect(block);  // lays it out
    for (int i = 0; i < block.layout()->lineCount(); ++i) edges.push_back(edges.back() + block.layout()->lineAt(i).height());
  }
  return edges;
}

TEST(DetailsStrip, ShowsWholeLinesAtEveryWidth) {
  DetailsStrip strip;
  strip.show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(&strip));
  const QString bold = QStringLiteral("2F5 of the third stage on rank 2 · 12.4 ms to 13.9 ms · takes 1.50 ms, 3 % longer than predicted");
  for (const int more : {1, 2, 4}) {
    QString text = bold;
    for (int i = 0; i < more; ++i)
      text += QStringLiteral("\nIts input comes from rank 1, which sent it 0.3 ms before; it had waited for it");
    for (int width = 1200; width >= 200; width -= 50) {
      strip.resize(width, strip.height());
      QApplication::processEvents();
      strip.setDetails({}, {});
      strip.setDetails(text, {});
      QApplication::processEvents();
      const std::vector<double> edges = edgesOf(strip);
      const double bottom = strip.viewport()->height() - strip.document()->documentMargin();
      const std::size_t shown = std::min<std::size_t>(edges.size() - 1, 4);
      EXPECT_GE(bottom, edges[shown]) << width << " pixels, line " << shown << " of " << edges.size() - 1;
      EXPECT_LE(bottom, edges[shown] + 2) << width << " pixels, line " << shown << " of " << edges.size() - 1;
    }
  }
}

}  // namespace
}  // namespace pw::gui
