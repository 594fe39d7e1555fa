#pragma once

#include <string>
#include <vector>

#include "simulator/model_graph.h"

namespace pw::cli {

/// Something about a model that a user should know before cutting it or its batch.
struct Finding {
  std::string kind;    ///< `batch-norm`, `random`, `in-place-buffer`, `data-dependent`, `unsupported`, `fixed-batch`
  std::string module;  ///< fully qualified name; empty for the root or where the whole model is meant
  std::string op;      ///< operator, or the tensor's name
  std::string source;  ///< `model.py:21 in forward`; may be empty

  bool operator==(const Finding&) const = default;
};

/// What happens where a finding of this kind stands: one sentence without the final full stop.
[[nodiscard]] std::string meaningOf(const std::string& kind);

/// All findings, by kind, in execution order within a kind. Cost: linear.
[[nodiscard]] std::vector<Finding> splitReport(const ModelGraph& graph);

}  // namespace pw::cli
