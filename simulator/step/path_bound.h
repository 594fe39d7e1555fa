#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "simulator/step/execute.h"
#include "simulator/step/program.h"

namespace pw {

/// What determined the start of a step: the step that it waited for last (−1: none), and over which delay (0: at its end).
struct Binding {
  std::int32_t step = -1, delay = 0;
};

/// As `execute(program, times)`, and which step each one waited for. Cost: linear in steps and edges.
void execute(const Program& program, Times& times, std::vector<Binding>& bindings);

/// Lower bounds of a training step's time under other costs, from the longest paths seen before. A step takes at least the sum of durations
/// and delays along any path of its program, plus the end of the step after it; so a change of costs that does not shorten a kept path
/// cannot shorten the step. Exact for the costs for which the path was the longest.
class PathBounds {
 public:
  /// Keeps the longest path of one execution with these rows and costs. Nothing is kept where costs differ between microbatches or slots
  /// have times of their own. When there are too many paths, the oldest are dropped.
  void add(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, const std::vector<Binding>& bindings);
  /// No step of the same structure takes less with these costs; 0 where nothing is known. Stops as soon as a path exceeds `enough`.
  [[nodiscard]] Ns stepWith(const Schedule& rows, const CostTable& costs, Ns enough);
  void clear() { paths_.clear(); }

 private:
  struct Path {
    std::vector<std::pair<std::int32_t, std::int32_t>> counts;  ///< which entry of `valuesOf`, how often
    Rank rank;                                                  ///< whose row or reductions it ends in
  };
  std::vector<Path> paths_;  ///< the most useful first
};

}  // namespace pw
