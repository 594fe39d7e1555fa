#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/torch/program/program.h"
#include "backends/torch/program/symbolic_numbers.h"
#include "simulator/model/model_graph.h"

namespace c10 {
struct Argument;
struct IValue;
}  // namespace c10

namespace pw {

/// `operator torch.ops.aten.linear.default in module blocks.0 (model.py:21 in forward)`.
[[nodiscard]] std::string describe(const Node& node);

/// A stack position that is filled with values of the frame at each run.
struct Slot {
  std::size_t position = 0;
  enum class Kind : std::uint8_t {
    Tensor,
    TensorList,
    OptionalTensorList,
    Integer,
    Double,
    Boolean,
    Scalar,
    IntegerList,
    NumberAsTensor
  } kind = Kind::Tensor;
  std::vector<std::optional<ValueId>> values;
  std::vector<std::int64_t> numbers;  // IntegerList: literals where `values` has none
};

/// Appends one argument of an operator call to `stack` as its schema wants it: a constant, or an empty place and a slot that fills it at
/// each run. Throws UsageError for arguments that cannot be run.
void bindArgument(const ModelGraph& graph, const Node& node, const c10::Argument& schema, const Argument& argument,
                  std::vector<c10::IValue>& stack, std::vector<Slot>& slots);

/// Puts values of the frame and numbers into their places. Throws Error for a number that nothing has computed.
void fillSlots(const std::vector<Slot>& slots, std::vector<c10::IValue>& stack, const Frame& frame, const Numbers& numbers);

}  // namespace pw
