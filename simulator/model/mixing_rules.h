#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/model/sample_layout.h"

namespace pw {

/// How a value depends on the samples.
struct SampleFlow {
  enum class Kind : std::uint8_t {
    Same,     ///< not at all: it is the same for every batch
    Numbers,  ///< the sample indices 0, 1, … along `layout`
    Along,    ///< each sample's own rows along `layout`
    Mixed,    ///< on all samples together
  };
  Kind kind = Kind::Same;
  SampleLayout layout;

  bool operator==(const SampleFlow&) const = default;
};

/// An argument that is a tensor.
struct FlowingTensor {
  std::string argument;   ///< its name; of a list, that of the list
  std::size_t index = 0;  ///< in a list
  Extents extents;
  SampleFlow flow;
};

/// A call of an operator, with its sizes for a batch of `batch`.
struct FlowingCall {
  const Node* node = nullptr;
  std::vector<FlowingTensor> tensors;  ///< in argument order
  std::vector<Extents> results;        ///< empty if it is not a tensor
  std::int64_t batch = 1;
  bool symbolicBatch = false;                                 ///< `batch` divides no other size
  std::vector<std::pair<std::string, std::int64_t>> numbers;  ///< arguments that are numbers, computed ones included
};

/// The result of a call: one flow per output, and how it mixes the samples (in words), if it does.
struct FlowResult {
  std::vector<SampleFlow> flows;
  std::optional<std::string> mixes;
  bool unknown = false;  ///< the operator has no rule: the flow is guessed from its shapes
};

/// Follows the samples through one call.
[[nodiscard]] FlowResult flowThrough(const FlowingCall& call);

}  // namespace pw
