// A model's findings in the panel: marks at rows, tips, and the list.
#include <gtest/gtest.h>

#include <QApplication>
#include <QTest>
#include <QToolButton>
#include <QTreeWidget>

#include <algorithm>

#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/model/findings_view.h"
#include "app/gui/model/panel.h"
#include "app/gui/model/tree_view.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

class FindingsShown : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    panel_.resize(800, 1000);
    panel_.show();
  }

  void open(const std::string& model) { document_.adopt(*loadFiles({samplePath(model)}, {})); }
  /// resnet18_narrow, which has a batch norm after each of its convolutions: one at the start, two in each of 8 blocks, and one at each of
  /// 3 shortcuts.
  void openFound() {
    open("resnet18_narrow");
    ASSERT_TRUE(QTest::qWaitFor([this] { return button().isVisible(); }, 20'000));
    QApplication::processEvents();  // the button gets its place
  }

  [[nodiscard]] QToolButton& button() { return *panel_.findChild<QToolButton*>("findings"); }
  [[nodiscard]] TreeView& view() { return *panel_.findChild<TreeView*>(); }
  [[nodiscard]] TreeModel& model() { return static_cast<TreeModel&>(*view().model()); }
  [[nodiscard]] QTreeWidget& list() { return *panel_.findChild<FindingsView*>()->findChild<QTreeWidget*>(); }
  [[nodiscard]] int row(const std::string& path) {
    const auto found = std::ranges::find_if(model().tree().rows, [&](const CallRow& r) { return r.isModule && r.path == path; });
    return found == model().tree().rows.end() ? -1 : static_cast<int>(found - model().tree().rows.begin());
  }
  [[nodiscard]] QString tip(const std::string& path) { return model().indexOf(row(path)).data(Qt::ToolTipRole).toString(); }
  /// Whether the mark of changed results is painted in the row's name.
  [[nodiscard]] bool isMarked(const std::string& path) {
    view().goTo(row(path));
    view().setCurrentIndex(model().indexOf(0));  // no selection over it
    view().scrollTo(model().indexOf(row(path)));
    const QRect cell = view().visualRect(model().indexOf(row(path)));
    const QImage picture = view().viewport()->grab(cell).toImage();
    for (int y = 0; y < picture.height(); ++y) {
      for (int x = 8; x < picture.width(); ++x) {  // right of the stage's colour
        if (picture.pixelColor(x, y) == currentTheme().warning) return true;
      }
    }
    return false;
  }

  Document document_;
  ModelPanel panel_{document_};
};

TEST_F(FindingsShown, ButtonCountsThemAndIsHiddenWithoutAny) {
  EXPECT_FALSE(button().isVisible());
  openFound();
  EXPECT_EQ(button().text(), QString("%1 findings").arg(model().findings().all().size()));
  EXPECT_EQ(std::ranges::count(model().findings().all(), FindingKind::BatchNorm, &Finding::kind), 1 + 2 * 8 + 3);
  open("gpt_small");
  EXPECT_FALSE(button().isVisible()) << "those of another model are not shown until the report on this one is made";
  EXPECT_TRUE(model().findings().all().empty());
}

TEST_F(FindingsShown, RowsAreMarkedAndSayWhatWhyAndWhatToDo) {
  openFound();
  EXPECT_TRUE(tip("bn1").contains("batch norm"));
  EXPECT_TRUE(tip("bn1").contains("results change with the microbatch size"));
  EXPECT_TRUE(tip("bn1").contains("What to do: Keep microbatches large"));
  EXPECT_FALSE(tip("conv1").contains("What to do"));
  EXPECT_TRUE(tip("layer1").contains("4 places")) << "two blocks of two, one tip around them: " << tip("layer1").toStdString();
  EXPECT_TRUE(isMarked("bn1"));
  EXPECT_FALSE(isMarked("conv1"));
  view().collapse(model().indexOf(row("layer1")));
  EXPECT_TRUE(isMarked("layer1")) << "a collapsed row shows what is inside";
  view().expand(model().indexOf(row("layer1")));
  EXPECT_FALSE(isMarked("layer1")) << "an expanded one leaves that to its rows";
  EXPECT_TRUE(model().indexOf(row("bn1")).data(Qt::AccessibleTextRole).toString().endsWith(", 1 finding"));
}

TEST_F(FindingsShown, ListShowsThemByKindAndGoesToTheirRows) {
  openFound();
  EXPECT_FALSE(list().isVisible());
  ASSERT_TRUE(QTest::qWaitFor([this] { return panel_.childAt(button().mapTo(&panel_, button().rect().center())) == &button(); }))
      << "laid out";
  QTest::mouseClick(&button(), Qt::LeftButton);
  ASSERT_TRUE(list().isVisible());
  QTreeWidgetItem* kind = list().topLevelItem(0);
  EXPECT_EQ(kind->text(0), "batch norm");
  EXPECT_EQ(kind->text(1), "20 places");
  EXPECT_EQ(kind->child(0)->text(1), "bn1");
  list().setCurrentItem(kind->child(1));
  EXPECT_EQ(view().currentRow(), row("layer1.0.bn1"));
  EXPECT_TRUE(view().visibleRows().isBetweenRows(model().tree().row(row("layer1.0.bn1")).firstNode)) << "opened around it";
  QTest::mouseClick(&button(), Qt::LeftButton);
  EXPECT_FALSE(list().isVisible());
}

TEST_F(FindingsShown, InALowPanelTheTreeKeepsRowsAboveTheList) {
  panel_.resize(360, 320);
  openFound();
  button().click();
  QApplication::processEvents();
  ASSERT_TRUE(list().isVisible());
  EXPECT_GE(view().viewport()->height(), 3 * view().visualRect(model().indexOf(0)).height());
}

}  // namespace
}  // namespace pw::gui
