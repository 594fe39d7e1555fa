// From a moved split to the painted timeline: the whole window on the offscreen platform, in software. Each drag step goes through the
// document, the background prediction and the paint event, as the mouse makes it. Prints a table; `gui.sh` runs it. Not a test.
#include <QApplication>
#include <QElapsedTimer>
#include <QTimer>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/timeline/widget.h"
#include "app/gui/window/main_window.h"
#include "simulator/partition/split.h"

namespace pw::gui {
namespace {

constexpr int kRanks = 4, kDrags = 500, kEdits = 50;

bool waitUntil(const std::function<bool()>& done) {
  QElapsedTimer timer;
  timer.start();
  QTimer tick;  // wakes the loop where nothing else does
  tick.start(100);
  while (!done()) {
    QApplication::processEvents(QEventLoop::WaitForMoreEvents);
    if (timer.elapsed() > 60'000) return false;
  }
  return true;
}

void print(const char* what, int tasks, std::vector<double>& times, double limit) {
  std::ranges::sort(times);
  const double p99 = times[static_cast<std::size_t>(0.99 * static_cast<double>(times.size() - 1))];
  std::printf("%-34s %10d %6zu %9.2f %9.2f %9.2f   %s %.1f\n", what, tasks, times.size(), times[times.size() / 2], p99, times.back(),
              p99 <= limit ? "ok  ≤" : "SLOW >", limit);
  std::fflush(stdout);
}

int drag(MainWindow& window, int tasks, double limit) {
  Document& document = window.document();
  const int microbatches = tasks / (2 * kRanks);
  document.edit("Microbatches", [&](Design& d) { d.request.microbatches = microbatches; });
  if (!waitUntil([&] { return window.isIdle(); })) return 1;
  window.timeline().fitAll();
  bool painted = false;
  QObject::connect(&window.timeline(), &TimelineWidget::timelinePainted, &window, [&] { painted = true; });
  const auto& points = document.splitPoints();
  const auto middle = std::ranges::lower_bound(points, document.design().request.begins[1], {}, &SplitPoint::begin);
  std::vector<double> times;
  document.beginDrag("Op split");
  for (int i = 0; i < kDrags; ++i) {
    const NodeId place = (middle - 1 + i % 3)->begin;
    if (place == document.design().request.begins[1]) continue;
    painted = false;
    QElapsedTimer timer;
    timer.start();
    document.edit("Op split", [&](Design& d) { d.request.begins[1] = place; });
    if (!waitUntil([&] { return painted && !document.isPredicting(); })) return 1;
    if (i >= 3) times.push_back(static_cast<double>(timer.nsecsElapsed()) * 1e-6);  // the first fill the memory that later ones use again
  }
  document.endDrag(false);
  print("split drag to painted timeline", tasks, times, limit);
  return 0;
}

/// A block of rank 1 dragged to and fro along its row, then moved by keys: each place is another order, lowered, compiled and simulated
/// anew. Of an edit, panels show the figures as well.
int dragBlock(MainWindow& window, int tasks, double limit) {
  Document& document = window.document();
  document.edit("Shape", [&](Design& d) { d.request.schedule = "gpipe", d.request.microbatches = tasks / (2 * kRanks); });
  if (!waitUntil([&] { return window.isIdle(); })) return 1;  // as it is when people come to drag: all figures of the plan are there
  HandEdit& hand = window.timeline().hand();
  hand.setOn(true);
  const auto prediction = document.prediction();
  const SpanTrack& track = prediction->timeline.ranks.at(1).compute;
  std::size_t at = 0;
  while (track.tags[at].kind != SpanKind::Backward) ++at;
  const Action block{track.tags[at].stage, ActionKind::Backward, track.tags[at].microbatch};
  bool painted = false;
  const auto connection = QObject::connect(&window.timeline(), &TimelineWidget::timelinePainted, &window, [&] { painted = true; });
  if (!hand.beginDrag(block)) return 1;
  std::vector<double> times;
  for (int i = 0; i < kDrags; ++i) {
    painted = false;
    QElapsedTimer timer;
    timer.start();
    hand.dragTo(Rank(1), track.start[at + 20 + static_cast<std::size_t>(i % 3)]);
    if (!waitUntil([&] { return painted && !document.isPredicting(); })) return 1;
    if (i >= 3) times.push_back(static_cast<double>(timer.nsecsElapsed()) * 1e-6);
  }
  hand.endDrag(false);
  print("block drag to painted timeline", tasks, times, limit);
  times.clear();
  hand.select(block);
  for (int i = 0; i < kEdits; ++i) {
    painted = false;
    QElapsedTimer timer;
    timer.start();
    hand.shift(i % 2 == 0 ? 1 : -1);
    if (!waitUntil([&] { return painted && !document.isPredicting(); })) return 1;
    if (i >= 3) times.push_back(static_cast<double>(timer.nsecsElapsed()) * 1e-6);
    if (!waitUntil([&] { return window.isIdle(); })) return 1;
  }
  print("edited order to painted timeline", tasks, times, limit);
  hand.setOn(false);
  document.edit("Schedule", [](Design& d) { d.request.schedule = "1f1b"; });
  QObject::disconnect(connection);
  if (!waitUntil([&] { return window.isIdle(); })) return 1;
  return 0;
}

}  // namespace
}  // namespace pw::gui

int main(int argc, char** argv) {
  qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication app(argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "drag_bench: call it with a model (.pt2).\n");
    return 2;
  }
  pw::gui::applyTheme(false);
  pw::gui::MainWindow window(false);
  window.resize(1400, 900);
  window.show();
  window.open({QString::fromLocal8Bit(argv[1])});
  if (!pw::gui::waitUntil([&] { return window.isIdle() && window.document().prediction() != nullptr; })) return 1;
  std::printf("%-34s %10s %6s %9s %9s %9s\n", "[ms]", "tasks", "n", "median", "p99", "worst");
  for (const auto& [tasks, limit] : {std::pair(10'000, 16.7), std::pair(100'000, 33.0)}) {
    if (const int failed = pw::gui::dragBlock(window, tasks, limit); failed != 0) return failed;
  }
  const int small = pw::gui::drag(window, 100'000, 16.7);
  return small != 0 ? small : pw::gui::drag(window, 1'000'000, 100);
}
