#include "app/gui/common/work_bar.h"

#include <gtest/gtest.h>

#include <QLabel>
#include <QPushButton>
#include <QTest>
#include <QTimer>
#include <atomic>
#include <thread>

#include "app/gui/common/jobs.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {
namespace {

TEST(WorkBar, ShowsLongWorkAndCancelsIt) {
  QWidget window;
  Job job;
  WorkBar bar(job, &window);
  window.show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(&window));
  std::atomic<bool> stopped{false};
  bool answered = false;
  job.start("Fit splits", [&](JobControl& control) -> std::function<void()> {
    while (!control.isCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stopped = true;
    return [&] { answered = true; };
  });
  EXPECT_FALSE(bar.isVisible()) << "not for a moment";
  ASSERT_TRUE(QTest::qWaitFor([&] { return bar.isVisible(); }, kLongMs));
  EXPECT_EQ(bar.findChild<QLabel*>()->text(), "Fit splits…");
  QTest::mouseClick(bar.findChild<QPushButton*>(), Qt::LeftButton);
  EXPECT_FALSE(bar.isVisible());
  EXPECT_FALSE(job.isRunning());
  ASSERT_TRUE(QTest::qWaitFor([&] { return stopped.load(); }, kLongMs));
  QTest::qWait(20);
  EXPECT_FALSE(answered);
}

/// Whether a widget was ever shown, if only for a moment.
class WatchesShow : public QObject {
 public:
  bool wasShown = false;

  bool eventFilter(QObject* watched, QEvent* event) override {
    wasShown = wasShown || event->type() == QEvent::Show;
    return QObject::eventFilter(watched, event);
  }
};

TEST(WorkBar, IsNotShownForShortWork) {
  QWidget window;
  Job job;
  WorkBar bar(job, &window);
  WatchesShow watch;
  bar.installEventFilter(&watch);
  window.show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(&window));
  bool answered = false;
  job.start("Balance splits", [&](JobControl&) -> std::function<void()> {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // long enough for the window to show the bar, were it to
    return [&] { answered = true; };
  });
  ASSERT_TRUE(QTest::qWaitFor([&] { return answered && !job.isRunning(); }, kLongMs));
  EXPECT_FALSE(bar.findChild<QTimer*>()->isActive()) << "nothing shows it any more";
  EXPECT_FALSE(watch.wasShown);
}

}  // namespace
}  // namespace pw::gui
