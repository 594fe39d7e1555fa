#include "engine/run/step_figures.h"

#include <sys/resource.h>

#include <csignal>
#include <random>

#include <gtest/gtest.h>

#include "backends/store/run_store.h"
#include "schedules/error.h"

namespace pw {
namespace {

StepFigures figuresOf(int step, Ns duration) {
  StepFigures figures{step, 1.0 / (step + 1), std::nullopt, duration, {}};
  if (step % 2 == 1) figures.gradientNorm = step;
  figures.metrics.makespan = duration - 1;
  figures.metrics.step = duration;
  figures.metrics.bubbleFraction = 0.25;
  figures.metrics.ranks = {{Rank(0), 1, 2, 3, 4, 5}, {Rank(1), 6, 7, 8, Bytes(duration.value), step}};
  return figures;
}

TEST(StepFigures, ComeBackAsTheyWereInAnyOrder) {
  StepFigureFile file;
  for (int step = 0; step < 5; ++step) file.add(figuresOf(step, Ns(10 + step)));
  EXPECT_EQ(file.size(), 5);
  EXPECT_EQ(file.at(3), figuresOf(3, 13));
  EXPECT_EQ(file.at(0), figuresOf(0, 10));
  file.add(figuresOf(5, 15));
  int next = 0;
  file.forEach([&](const StepFigures& figures) {
    EXPECT_EQ(figures, figuresOf(next, Ns(10 + next)));
    ++next;
  });
  EXPECT_EQ(next, 6);
}

/// A limit on the size of files fails as a full disk does, in the middle of a step.
TEST(StepFigures, OfStepsBeforeTheDiskWasFullStay) {
  StepFigureFile file;
  file.add(figuresOf(0, 10));
  file.add(figuresOf(1, 11));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = before;
  tight.rlim_cur = 400;
  setrlimit(RLIMIT_FSIZE, &tight);
  int step = 2;
  EXPECT_THROW(for (; step < 100; ++step) file.add(figuresOf(step, Ns(10 + step))), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  ASSERT_LT(step, 100);
  ASSERT_EQ(file.size(), step);
  int next = 0;
  file.forEach([&](const StepFigures& figures) {
    EXPECT_EQ(figures, figuresOf(next, Ns(10 + next)));
    ++next;
  });
  EXPECT_EQ(next, step);
}

/// As `medianPosition` of the same durations chooses it, among few different ones and among large ones.
TEST(StepFigures, HaveTheMedianOfTheRun) {
  const unsigned seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const Ns most : {Ns{3}, Ns{70'000}, Ns{1} << 40}) {
    for (int steps = 1; steps < 40; ++steps) {
      StepFigureFile file;
      std::vector<Ns> durations;
      for (int step = 0; step < steps; ++step) {
        const Ns duration = 1 + static_cast<Ns>(random() % static_cast<std::uint64_t>(most));
        file.add(figuresOf(step, duration));
        durations.push_back(duration);
      }
      EXPECT_EQ(static_cast<std::size_t>(file.median().step), medianPosition(durations)) << steps << " steps of at most " << most << " ns";
    }
  }
}

TEST(StepFigures, OfNoStepsAreNone) {
  StepFigureFile file;
  EXPECT_EQ(file.size(), 0);
  file.forEach([](const StepFigures&) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace pw
