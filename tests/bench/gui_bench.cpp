// Times of the timeline's picture on the offscreen platform, in software: a scripted tour of pans and zooms, and predictions that change
// under it. Prints a table; `gui.sh` runs it. Not a test.
#include <QGuiApplication>
#include <QImage>
#include <QPainter>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"
#include "app/gui/timeline/drawing/scene_painter.h"
#include "schedules/generate.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/timeline/fill.h"

namespace pw::gui {
namespace {

constexpr int kWidth = 1400, kHeight = 900, kRanks = 8, kTourSteps = 1000, kRefills = 500;

/// Wall clock; or what this thread computed, for comparisons on a busy machine.
bool countsProcessorTime = false;  // NOLINT: set once, by the command line

double now() {
  if (!countsProcessorTime) return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

void print(const char* what, long tasks, std::vector<double> times, double limit) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[std::min(times.size() - 1, static_cast<std::size_t>(share * static_cast<double>(times.size())))];
  };
  std::printf("%-34s %10ld %6zu %9.2f %9.2f %9.2f", what, tasks, times.size(), at(0.5), at(0.99), times.back());
  if (limit > 0) std::printf("   %s %.1f", at(0.99) <= limit ? "ok  ≤" : "SLOW >", limit);
  std::printf("\n");
  std::fflush(stdout);
}

/// 1F1B with costs of every kind on 8 ranks.
struct Case {
  Schedule rows;
  CostTable costs;
  Program program;
  Times times;

  explicit Case(long tasks) : rows(generate("1f1b", {kRanks, kRanks, static_cast<int>(tasks / (2 * kRanks))})) {
    SyntheticCosts synthetic;
    for (int s = 0; s < kRanks; ++s) {
      synthetic.forward.push_back(1'000'000 + Ns{20'000} * (s % 3));
      synthetic.backward.push_back(2'000'000 - Ns{30'000} * (s % 2));
    }
    synthetic.latency = 10'000;
    synthetic.transfer = 100'000;
    costs = syntheticTable(synthetic, kRanks);
    for (StageCost& stage : costs.stages) {
      stage.parameterBytes = Bytes{1} << 30;
      stage.activationBytes = Bytes{100} << 20;
      stage.forwardPeak = Bytes{150} << 20;
      stage.backwardPeak = Bytes{50} << 20;
    }
    program = compile(rows, costs);
    execute(program, times);
  }
};

struct Window {
  QImage image{kWidth, kHeight, QImage::Format_RGB32};
  Scene scene;
  RowLayout layout;
  ScenePainter painter;

  void show(std::shared_ptr<const Timeline> timeline) {
    scene.predicted = std::move(timeline);
    scene.ranks.clear();
    for (std::size_t r = 0; r < scene.predicted->ranks.size(); ++r) scene.ranks.push_back({Rank(r)});
    scene.memoryLimits.assign(scene.predicted->ranks.size(), scene.predicted->peak);
    layout = layOutRows(scene);
  }
  [[nodiscard]] int width() const { return kWidth - labelWidth(scene); }
  double paint(const Viewport& view) {
    const double begin = now();
    QPainter to(&image);
    painter.paint(to, image.rect(), scene, layout, view, 0, theme(false));
    to.end();
    return now() - begin;
  }
};

/// In from all to single tasks in different places, panning by whole pixels on every level, and out again.
void tour(long tasks, double limit) {
  auto timeline = std::make_shared<Timeline>();
  {
    const Case c(tasks);
    fillTimeline(c.rows, c.costs, c.program, c.times, *timeline);
  }
  Window window;
  window.show(timeline);
  const Ns end = timeline->end;
  std::vector<double> all, pans, zooms;
  Viewport view = fitted(0, end, window.width());
  (void)window.paint(view);
  for (int step = 0; step < kTourSteps; ++step) {
    const bool pan = step % 5 < 2;
    const bool in = (step / 100) % 2 == 0;
    view = pan ? panned(view, (step % 2 == 0 ? 37 : -11) + step % 7, end)
               : zoomed(view, (step * 397) % window.width(), in ? 0.83 : 1 / 0.83, end);
    const double time = window.paint(view);
    all.push_back(time);
    (pan ? pans : zooms).push_back(time);
  }
  print("tour: pan", tasks, pans, limit);
  print("tour: zoom", tasks, zooms, limit);
  print("tour: all", tasks, all, limit);
}

/// New times of the same program, as a dragged split makes them, and the picture.
void refill(long tasks, double limit) {
  Case c(tasks);
  Window window;
  std::vector<std::shared_ptr<Timeline>> timelines{std::make_shared<Timeline>(), std::make_shared<Timeline>()};
  std::vector<double> runs, fills, paints, all;
  const int repeats = tasks > 500'000 ? kRefills / 5 : kRefills;
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t s = 0; s < c.program.duration.size(); s += 97) c.program.duration[s] += i % 2 == 0 ? Ns{1000} : Ns{-1000};
    const double begin = now();
    execute(c.program, c.times);
    const double executed = now();
    auto& timeline = timelines[static_cast<std::size_t>(i) % 2];
    fillTimeline(c.rows, c.costs, c.program, c.times, *timeline);
    const double filled = now();
    window.show(timeline);
    const double painted = window.paint(fitted(0, timeline->end, window.width()));
    if (i < 2) continue;  // the arrays grow
    runs.push_back(executed - begin);
    fills.push_back(filled - executed);
    paints.push_back(painted);
    all.push_back(executed - begin + filled - executed + painted);
  }
  print("new times: simulate", tasks, runs, 0);
  print("new times: fill", tasks, fills, 0);
  print("new times: paint", tasks, paints, 6);
  print("new times: all", tasks, all, limit);
}

// The whole drag, from `Document::edit` over the background prediction to `timelinePainted`, is to be measured here.

}  // namespace
}  // namespace pw::gui

int main(int argc, char** argv) {
  qputenv("QT_QPA_PLATFORM", "offscreen");
  const QGuiApplication app(argc, argv);
  bool quick = false;  // without ten million tasks
  for (int i = 1; i < argc; ++i) {
    quick = quick || std::strcmp(argv[i], "--quick") == 0;
    pw::gui::countsProcessorTime = pw::gui::countsProcessorTime || std::strcmp(argv[i], "--cpu") == 0;
  }
  std::printf("%-34s %10s %6s %9s %9s %9s\n", "[ms]", "tasks", "n", "median", "p99", "worst");
  pw::gui::tour(1'000'000, 16.7);
  if (!quick) pw::gui::tour(10'000'000, 33);
  pw::gui::refill(100'000, 16.7);
  pw::gui::refill(1'000'000, 100);
  return 0;
}
