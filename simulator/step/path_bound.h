#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "simulator/step/execute.h"
#include "simulator/step/program.h"

namespace pw {

/// What made a step of a program start when it does: the step that it waited for last (−1: none), and over which delay (0: at its end).
struct Binding {
  std::int32_t step = -1, delay = 0;
};

/// As `execute(program, times)`, and which step each one waited for. Cost: linear in steps and edges.
void execute(const Program& program, Times& times, std::vector<Binding>& bindings);

/// Lower bounds of a step's time under other costs, from longest paths seen before. Each path of a program takes at least the sum of its
/// durations and delays whatever these are, and `stepOf` no less than that with the end of the step after it; so a change of costs that
/// leaves a kept path as long cannot shorten the step. Exact for the costs the path was the longest with.
class PathBounds {
 public:
  /// Keeps the longest path of a pass over a program of these rows and costs. Nothing is kept where costs differ between microbatches or
  /// slots have times of their own. Of many paths the oldest go.
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
