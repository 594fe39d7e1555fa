#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulator/program.h"
#include "simulator/search.h"

namespace pw {

/// A shape that is tried: schedule, chunks and microbatches; for use within the search only.
struct SearchShape {
  PlanRequest request;    ///< without begins
  int stages = 0;
  SizedProfile profile;
};

/// Where a shape's splits may start from.
struct SplitStart {
  std::string name;
  std::vector<NodeId> begins;
};

/// Prices and simulates plans of one shape, one after the other. The program is compiled once, and again where its structure changes.
class Evaluator {
 public:
  Evaluator(const ModelGraph& graph, const SearchShape& shape);

  /// What is predicted with these splits and this recomputation. Throws UsageError where the model cannot be cut or recomputed so.
  [[nodiscard]] Candidate evaluate(const SplitStart& start, const std::vector<std::string>& recompute);

  /// Moves single begins of a candidate to places 1, 2 or 4 further in `places` (ascending) as long as that lowers, in this order, what is over
  /// the memory limit, the step, the peak; at most `rounds` times over all begins. `goOn` is asked before every try. Ties: the first found.
  [[nodiscard]] Candidate improve(const Candidate& start, const std::vector<NodeId>& places, int rounds, const std::function<bool()>& goOn);

 private:
  const ModelGraph& graph_;
  const SearchShape& shape_;
  std::shared_ptr<const Schedule> rows_;
  std::optional<Program> program_;
  Times times_;
};

}  // namespace pw
