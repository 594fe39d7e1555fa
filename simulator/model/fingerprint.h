#pragma once

#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// What a plan knows of the model it was made for: operators with their arguments, shapes, element types, and names and shapes of
/// parameters, buffers and inputs. Not weights, file names, module classes and source lines, so that a fine-tuned checkpoint of a model has
/// the model's own.
struct ModelFingerprint {
  std::string digest;                ///< of everything [32 hexadecimal digits]; empty: unknown, as in plans of older versions
  std::vector<std::string> tensors;  ///< `parameter blocks.0.weight: float32 64x64`, to name what differs
  std::string operators;             ///< four hexadecimal digits for each node, to name the first that differs

  bool operator==(const ModelFingerprint&) const = default;
};

/// Linear in the graph. Names of symbolic sizes do not matter, nor do the sizes they had at export.
[[nodiscard]] ModelFingerprint fingerprintOf(const ModelGraph& graph);

/// What of this graph is not as planned, the first parameter, buffer, input or operator in words; empty where nothing is, or `planned` is
/// unknown.
[[nodiscard]] std::string differenceTo(const ModelFingerprint& planned, const ModelGraph& graph);

}  // namespace pw
