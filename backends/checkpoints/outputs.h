#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/communicator.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// One microbatch's value of a model output: contiguous.
struct OutputPart {
  std::vector<std::int64_t> shape;
  Buffer data;
};

/// An output of the model over a whole batch.
struct ModelOutput {
  std::string name;
  DType dtype = DType::Float32;
  std::optional<std::size_t> dimension;  ///< of the samples (`batchAxis`); nothing: the same for the whole batch, or a mean over it
  std::vector<OutputPart> parts;         ///< of all microbatches, in order
  std::int64_t outer = 1;                ///< blocks of that dimension in which each part's samples stand (`BatchAxis`)
};

/// Writes the outputs of an evaluation as a dict that `torch.load` reads. Parts are joined along their dimension of samples. For an output
/// without one, floating point parts (a loss) are averaged in float64, weighted by `samples` (of each microbatch), and stored in their own
/// type, or float32 for 16-bit types; of other types the first part is stored. Throws UsageError naming the output when parts do not fit
/// together, Error when the file cannot be written. A `/` in a name becomes a `.`. Memory: one joined output.
void mergeAndSave(const std::string& path, const std::vector<ModelOutput>& outputs, const std::vector<std::int64_t>& samples);

}  // namespace pw
