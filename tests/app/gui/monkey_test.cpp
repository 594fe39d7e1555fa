// A user who does anything at all, by a seed that is printed: nothing may crash, and undo leads all the way back.

#include <QAbstractScrollArea>
#include <QApplication>
#include <cstdlib>
#include <random>

#include "schedules/generate.h"
#include "simulator/timeline/fill.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class Monkey {
 public:
  Monkey(MainWindow& window, unsigned seed) : window_(window), random_(seed) {}

  void act() {
    switch (below(12)) {
      case 0: return key();
      case 1: return click();
      case 2: return drag();
      case 3: return wheel();
      case 4: return edit();
      case 5: return dragSplit();
      case 6: return window_.document().undo();
      case 7: return below(3) == 0 ? window_.document().redo() : edit();
      case 8: return view();
      case 9: return resize();
      case 10:
        return static_cast<void>(
            window_.timeline().findText(QStringList{"F", "B 1", "rank 1", "stage 2", "bubble", "1F3", "x", ""}.at(below(8))));
      default: return splitKey();
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  QPoint somewhere(const QWidget& w) { return {below(std::max(1, w.width())), below(std::max(1, w.height()))}; }

  void key() {
    static const QList<Qt::Key> keys{Qt::Key_W,       Qt::Key_S,      Qt::Key_A,      Qt::Key_D,           Qt::Key_F,
                                     Qt::Key_Home,    Qt::Key_Period, Qt::Key_Comma,  Qt::Key_BracketLeft, Qt::Key_BracketRight,
                                     Qt::Key_P,       Qt::Key_C,      Qt::Key_Escape, Qt::Key_Left,        Qt::Key_Right,
                                     Qt::Key_Up,      Qt::Key_Down,   Qt::Key_Slash,  Qt::Key_Return,      Qt::Key_PageUp,
                                     Qt::Key_PageDown};
    const auto modifier = below(6) == 0 ? Qt::AltModifier : below(6) == 0 ? Qt::ShiftModifier : Qt::NoModifier;
    QTest::keyClick(&window_.timeline(), keys.at(below(static_cast<int>(keys.size()))), modifier);
  }
  void click() {
    TimelineWidget& timeline = window_.timeline();
    const QPoint at = somewhere(timeline);
    below(4) == 0 ? QTest::mouseDClick(&timeline, Qt::LeftButton, Qt::NoModifier, at)
                  : QTest::mouseClick(&timeline, Qt::LeftButton, Qt::NoModifier, at);
  }
  void drag() {
    TimelineWidget& timeline = window_.timeline();
    QTest::mousePress(&timeline, Qt::LeftButton, Qt::NoModifier, somewhere(timeline));
    for (int i = below(4); i >= 0; --i) QTest::mouseMove(&timeline, somewhere(timeline));
    QTest::mouseRelease(&timeline, Qt::LeftButton, Qt::NoModifier, somewhere(timeline));
  }
  void wheel() {
    TimelineWidget& timeline = window_.timeline();
    const QPointF at = somewhere(timeline);
    QWheelEvent event(at, timeline.mapToGlobal(at), {}, {0, below(2) == 0 ? 120 : -120}, Qt::NoButton,
                      below(2) == 0 ? Qt::ControlModifier : Qt::NoModifier, Qt::NoScrollPhase, false);
    QApplication::sendEvent(&timeline, &event);
  }
  void edit() {
    window_.document().edit("Change", [this](Design& d) {
      PlanRequest& r = d.request;
      switch (below(9)) {
        case 0: r.schedule = std::string(generators()[static_cast<std::size_t>(below(static_cast<int>(generators().size())))].name); break;
        case 1: r.ranks = 1 + below(6); break;
        case 2: r.chunks = below(4); break;
        case 3: r.microbatches = 1 + below(20); break;
        case 4:
          r.recompute = parseRecompute(
              {std::vector<std::string>{"none", "full", "auto", "blocks", "nothing of this name"}[static_cast<std::size_t>(below(5))]});
          break;
        case 5: r.memoryLimit = below(3) * Bytes{1'500'000}; break;
        case 6:
          d.cluster =
              std::vector<std::string>{"cpu-workstation", "h100-nvlink", "a100-pcie", "none of these"}[static_cast<std::size_t>(below(4))];
          break;
        case 7: r.replicas = 1 + below(2); break;
        default: r.optimizer.kind = kOptimizers[static_cast<std::size_t>(below(4))].kind; break;
      }
    });
  }
  void dragSplit() {
    auto* margin = window_.findChild<Margin*>();
    if (margin == nullptr || margin->handles().empty()) return;
    SplitHandle* handle = margin->handles()[static_cast<std::size_t>(below(static_cast<int>(margin->handles().size())))];
    QTest::mousePress(handle, Qt::LeftButton, Qt::NoModifier, handle->rect().center());
    for (int i = below(5); i >= 0; --i) QTest::mouseMove(handle, handle->rect().center() + QPoint(0, below(400) - 200));
    if (below(4) == 0) QTest::keyClick(handle, Qt::Key_Escape);
    QTest::mouseRelease(handle, Qt::LeftButton, Qt::NoModifier, handle->rect().center());
  }
  void splitKey() {
    auto* margin = window_.findChild<Margin*>();
    if (margin == nullptr || margin->handles().empty()) return;
    SplitHandle* handle = margin->handles()[static_cast<std::size_t>(below(static_cast<int>(margin->handles().size())))];
    QTest::keyClick(handle,
                    std::vector<Qt::Key>{Qt::Key_Up, Qt::Key_Down, Qt::Key_Down, Qt::Key_Delete}[static_cast<std::size_t>(below(4))]);
  }
  void view() {
    TimelineWidget& t = window_.timeline();
    switch (below(9)) {
      case 0: return t.setColourBy(std::vector{ColourBy::Kind, ColourBy::Stage, ColourBy::Microbatch}[static_cast<std::size_t>(below(3))]);
      case 1: return t.setArrangement(below(2) == 0 ? Arrangement::Below : Arrangement::Over);
      case 2: return t.setDifferences(below(2) == 0);
      case 3: return t.showCriticalPath(below(2) == 0);
      case 4: return t.restoreView(t.saveView());
      case 5: return t.viewBack();
      case 6: return t.viewForward();
      case 7: {
        auto measured = std::make_shared<Measured>();
        if (below(2) == 0 && window_.document().prediction()) {
          measured->trace = traceOf(*window_.document().prediction());
          measured->timeline = timelineOf(measured->trace);
          return window_.document().setMeasured(measured);
        }
        return window_.document().setMeasured(nullptr);
      }
      default: return t.moveRank(below(2) == 0 ? 1 : -1);
    }
  }
  void resize() {
    if (below(10) == 0) window_.resize(720 + below(900), 480 + below(600));
    QApplication::processEvents();
  }

  MainWindow& window_;
  std::mt19937 random_;
};

TEST_F(WindowFixture, SurvivesAMonkeyAndUndoesAllItDid) {
  const char* given = std::getenv("PIPEWRIGHT_MONKEY_SEED");
  const char* wanted = std::getenv("PIPEWRIGHT_MONKEY_ACTIONS");
  const unsigned seed = given == nullptr ? 20261122U : static_cast<unsigned>(std::atoi(given));
  const int actions = wanted == nullptr ? 2000 : std::atoi(wanted);
  SCOPED_TRACE("PIPEWRIGHT_MONKEY_SEED=" + std::to_string(seed));
  open(sample("gpt_small.pt2"));
  const Design first = document().design();
  Monkey monkey(*window_, seed);
  for (int i = 0; i < actions; ++i) {
    monkey.act();
    if (i % 16 == 0) QApplication::processEvents(QEventLoop::AllEvents, 20);
    if (i % 256 == 0) {
      ASSERT_TRUE(settle()) << "action " << i;
    }
  }
  ASSERT_TRUE(settle());
  while (!document().undoText().isEmpty()) document().undo();
  EXPECT_EQ(document().design(), first);
  ASSERT_TRUE(settle());
  EXPECT_TRUE(document().problem().isEmpty()) << document().problem().toStdString();
}

}  // namespace
}  // namespace pw::gui
