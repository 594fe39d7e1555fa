#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/model/state_changes.h"

namespace pw {

/// In the order of a report: what limits splitting, then what changes results, then what is good to know.
enum class FindingKind : std::uint8_t {
  Unsupported,
  DataDependent,
  FixedBatch,
  BatchMixing,
  BatchNorm,
  PowerIteration,
  LossBias,
  UnknownOperator,
  InPlaceBuffer,
  LossCount,
  Random,
  OwnLoss,
  SharedParameter,
  UnusedParameter,
  Nondeterministic,
};

enum class FindingEffect : std::uint8_t {
  Limits,          ///< the model cannot be run here, or not be split or microbatched everywhere
  ChangesResults,  ///< results depend, or may depend, on the size of the microbatches
  Note,
};

/// What is known of all findings of a kind; sentences without the final full stop.
struct FindingFacts {
  FindingKind kind;
  FindingEffect effect;
  std::string_view name;     ///< `batch-norm`
  std::string_view meaning;  ///< one sentence
  std::string_view cure;     ///< what to do about it, one sentence
};
[[nodiscard]] const FindingFacts& factsOf(FindingKind kind);

/// Something that a user should know about a model before splitting it or its batch.
struct Finding {
  FindingKind kind = FindingKind::Unsupported;
  std::string module;          ///< fully qualified name; empty for the root or where the whole model is meant
  std::string op;              ///< operator, or the tensor's name
  std::string source;          ///< `model.py:21 in forward`; may be empty
  std::string detail;          ///< what it does here, if the kind alone does not say
  std::optional<NodeId> node;  ///< of the graph (for a node of a sub-graph, the one that holds it); nothing: no node in particular

  bool operator==(const Finding&) const = default;
};

/// Whether LibTorch has an operator; by its target, `torch.ops.aten.linear.default`.
using HasOperator = std::function<bool(const std::string& target)>;

/// What LibTorch knows of operators; either may be empty.
struct OperatorFacts {
  HasOperator has;
  WrittenArguments written;
};

/// All findings, by kind, in execution order within a kind. Without `facts.has`, operators count as supported by their namespace. Cost:
/// linear.
[[nodiscard]] std::vector<Finding> splitReport(const ModelGraph& graph, const OperatorFacts& facts = {});

}  // namespace pw
