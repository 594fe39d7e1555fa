#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "simulator/step/compile.h"
#include "simulator/step/program.h"

namespace pw {

/// One schedule's rows under many different costs: compiled once, and again only when the structure changes. Memory peaks are computed per
/// rank, without times, and cached. Messages are overlapped. Keeps a reference to the rows. Not thread-safe.
class CompiledRows {
 public:
  explicit CompiledRows(const Schedule& rows) : rows_(rows) {}
  explicit CompiledRows(Schedule&&) = delete;  // which would end before this

  [[nodiscard]] const Schedule& rows() const { return rows_; }
  /// Most memory of each rank: `compile(rows, costs).peakBytes`. Cost: linear in the steps of ranks whose stages changed.
  [[nodiscard]] std::vector<Bytes> peaks(const CostTable& costs);
  /// Of these ranks only, the others as they are.
  void updatePeaks(const CostTable& costs, const std::vector<Rank>& ranks, std::vector<Bytes>& peaks);
  /// The program with the durations and delays of these costs; its memory fields may belong to other costs. Cost: linear in steps.
  [[nodiscard]] const Program& timed(const CostTable& costs);
  /// How many structures have been compiled: programs with the same number differ in costs only.
  [[nodiscard]] int structure() const { return structure_; }
  /// Compiles where these costs have another structure; returns the number as above.
  int prepare(const CostTable& costs);

 private:
  const Schedule& rows_;
  std::optional<Program> program_;
  int structure_ = 0;
  std::map<std::pair<Rank, std::vector<Bytes>>, Bytes> kept_;  ///< peaks, by rank and all that decides them
};

}  // namespace pw
