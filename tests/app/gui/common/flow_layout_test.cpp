#include "app/gui/common/flow_layout.h"

#include <gtest/gtest.h>

#include <QWidget>

namespace pw::gui {
namespace {

/// Four widgets of 100 × 20, 10 apart.
class FlowLayoutTest : public testing::Test {
 protected:
  FlowLayoutTest() {
    flow->setSpacing(10);
    for (QWidget*& widget : widgets) {
      widget = new QWidget;
      widget->setFixedSize(100, 20);
      flow->addWidget(widget);
    }
  }
  [[nodiscard]] std::vector<QPoint> placesAt(int width) {
    flow->setGeometry({0, 0, width, flow->heightForWidth(width)});
    std::vector<QPoint> places;
    for (const QWidget* widget : widgets) places.push_back(widget->pos());
    return places;
  }

  QWidget parent;
  FlowLayout* flow = new FlowLayout(&parent);
  std::array<QWidget*, 4> widgets{};
};

TEST_F(FlowLayoutTest, IsOneLineWhereAllFit) {
  EXPECT_EQ(flow->sizeHint(), QSize(430, 20));
  EXPECT_EQ(flow->heightForWidth(430), 20);
  EXPECT_EQ(placesAt(430), (std::vector<QPoint>{{0, 0}, {110, 0}, {220, 0}, {330, 0}}));
}

TEST_F(FlowLayoutTest, GoesOnInTheNextLineWhereOneIsFull) {
  EXPECT_EQ(flow->heightForWidth(429), 50);
  EXPECT_EQ(placesAt(429), (std::vector<QPoint>{{0, 0}, {110, 0}, {220, 0}, {0, 30}}));
  EXPECT_EQ(placesAt(100), (std::vector<QPoint>{{0, 0}, {0, 30}, {0, 60}, {0, 90}}));
  EXPECT_EQ(flow->minimumSize(), QSize(100, 20));
}

TEST_F(FlowLayoutTest, LeavesOutWhatIsHidden) {
  widgets[1]->hide();
  EXPECT_EQ(flow->sizeHint(), QSize(320, 20));
  EXPECT_EQ(placesAt(320)[2], QPoint(110, 0));
  EXPECT_EQ(flow->heightForWidth(320), 20);
}

}  // namespace
}  // namespace pw::gui
