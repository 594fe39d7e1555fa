#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedules/answer.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// What a step minimises: made of the model's first output (and of targets, which the data has), or an output of the model itself.
enum class LossKind : std::uint8_t { CrossEntropy, MeanSquaredError, Sum, Output };
constexpr std::string_view nameOf(LossKind kind) {
  switch (kind) {
    case LossKind::CrossEntropy: return "cross_entropy";
    case LossKind::MeanSquaredError: return "mse";
    case LossKind::Sum: return "sum";
    case LossKind::Output: return "output";
  }
  return {};
}

struct Loss {
  LossKind kind = LossKind::CrossEntropy;
  std::string output = {};  ///< of `Output`: see `findOutput`

  bool operator==(const Loss&) const = default;
};

/// `cross_entropy`, `mse`, `sum`, `output:NAME`. Throws UsageError for anything else, listing these.
[[nodiscard]] Loss parseLoss(std::string_view text);
/// The same, with that sentence as an answer.
[[nodiscard]] Answer<Loss> tryLoss(std::string_view text);
/// As `parseLoss` reads it.
[[nodiscard]] std::string toString(const Loss& loss);

/// The default: the model's own if an output named `loss`, or otherwise its first output, is a single number; otherwise cross_entropy.
[[nodiscard]] Loss defaultLoss(const ModelGraph& graph);
/// As `parseLoss`; the default where the text is empty. Throws UsageError for one with targets where the output is a single number, and for
/// an output that is not there, or no single number.
[[nodiscard]] Loss lossNamed(std::string_view text, const ModelGraph& graph);

/// Position of the output with this name, otherwise with this name in the trace, otherwise with this index; nothing if there is none.
[[nodiscard]] std::optional<std::size_t> findOutput(const ModelGraph& graph, const std::string& wanted);

/// Position of the output that the loss is, or is made of. Throws UsageError where the model has no output, or none of that name.
[[nodiscard]] std::size_t outputOf(const ModelGraph& graph, const Loss& loss);

}  // namespace pw
