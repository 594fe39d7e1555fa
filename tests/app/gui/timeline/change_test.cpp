// What a change of the plan does, outlined and in words, while something is selected.
#include <gtest/gtest.h>

#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

class TimelineChange : public TimelineFixture {
 protected:
  void slow() {
    recost([](CostTable& costs) { costs.stages[0].backward *= 2; });
  }
  /// Whether the outlines of the plan before are painted.
  [[nodiscard]] bool hasOutlines() {
    const QImage with = canvas()->grab().toImage();
    widget.dismissChange();
    return with != canvas()->grab().toImage();
  }
};

TEST_F(TimelineChange, IsShownBesideASelectedBlock) {
  click(middleOf(at(1, SpanKind::Forward, 1, 3)));
  const QString ofBlock = widget.details();
  ASSERT_FALSE(ofBlock.isEmpty());
  slow();
  ASSERT_TRUE(selected().has_value());
  EXPECT_TRUE(widget.details().startsWith("Step ")) << widget.details().toStdString();
  EXPECT_TRUE(widget.details().contains("1F3")) << "what is selected is said as well: " << widget.details().toStdString();
  widget.dismissChange();
  EXPECT_FALSE(widget.details().contains("Step ")) << widget.details().toStdString();
}

TEST_F(TimelineChange, OfAnEditByKeyIsOutlined) {
  key(Qt::Key_E);
  click(middleOf(at(0, SpanKind::Backward, 0, 1)));
  await();
  key(Qt::Key_Right, Qt::ShiftModifier);
  await();
  ASSERT_TRUE(selected().has_value());
  ASSERT_NE(document.before(), document.prediction());
  EXPECT_TRUE(hasOutlines());
}

}  // namespace
}  // namespace pw::gui
