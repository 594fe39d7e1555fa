#pragma once

#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// What a plan records of the model it was made for: operators with their arguments, shapes, element types, and names and shapes of
/// parameters, buffers and inputs. Weights, file names, module classes and source lines are left out, so that a fine-tuned checkpoint has
/// the same fingerprint as its model.
struct ModelFingerprint {
  std::string digest;                ///< of everything [32 hexadecimal digits]; empty: unknown, as in plans of older versions
  std::vector<std::string> tensors;  ///< `parameter blocks.0.weight: float32 64x64`, to name what differs
  std::string operators;             ///< four hexadecimal digits for each node, to name the first that differs

  bool operator==(const ModelFingerprint&) const = default;
};

/// Linear in the graph. Names of symbolic sizes do not matter, nor do the sizes they had at export.
[[nodiscard]] ModelFingerprint fingerprintOf(const ModelGraph& graph);

/// The first parameter, buffer, input or operator of this graph that differs from the planned model, in words; empty when none does or
/// `planned` is unknown.
[[nodiscard]] std::string differenceTo(const ModelFingerprint& planned, const ModelGraph& graph);

}  // namespace pw
