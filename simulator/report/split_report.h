#pragma once

#include <functional>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/model/state_changes.h"

namespace pw::cli {

/// Something that a user should know about a model before splitting it or its batch.
struct Finding {
  /// `unsupported`, `data-dependent`, `fixed-batch`, `batch-mixing`, `batch-norm`, `power-iteration`, `loss-bias`, `unknown-operator`,
  /// `in-place-buffer`, `loss-count`, `random`, `own-loss`, `shared-parameter`, `unused-parameter`, `nondeterministic`
  std::string kind;
  std::string module;  ///< fully qualified name; empty for the root or where the whole model is meant
  std::string op;      ///< operator, or the tensor's name
  std::string source;  ///< `model.py:21 in forward`; may be empty
  std::string detail;  ///< what it does here, if the kind alone does not say

  bool operator==(const Finding&) const = default;
};

/// Whether LibTorch has an operator; by its target, `torch.ops.aten.linear.default`.
using HasOperator = std::function<bool(const std::string& target)>;

/// What LibTorch knows of operators; either may be empty.
struct OperatorFacts {
  HasOperator has;
  WrittenArguments written;
};

/// The meaning of findings of this kind: one sentence without the final full stop.
[[nodiscard]] std::string meaningOf(const std::string& kind);
/// What to do about it: one sentence without the final full stop.
[[nodiscard]] std::string cureOf(const std::string& kind);

/// All findings, by kind, in execution order within a kind. Without `facts.has`, operators count as supported by their namespace. Cost:
/// linear.
[[nodiscard]] std::vector<Finding> splitReport(const ModelGraph& graph, const OperatorFacts& facts = {});

/// The findings as text: per kind what it means, a table, and what to do. Findings that differ only in the numbers of their modules share a
/// row.
[[nodiscard]] std::string findingsText(const ModelGraph& graph, const std::vector<Finding>& findings);

}  // namespace pw::cli
