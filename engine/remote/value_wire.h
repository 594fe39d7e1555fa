#pragma once

#include <vector>

#include "backends/host/packed.h"
#include "engine/remote/references.h"
#include "engine/remote/value.h"

namespace pw {

/// A value as it goes out.
struct SentValue {
  Packer head;
  std::vector<HeldBuffer> parts;           ///< memory of the tensors, in their order
  std::vector<TensorHandle> needGradient;  ///< of the tensors, in their order; their places are marked in the head
  SentShares shares;                       ///< to be committed when it has gone out
};

/// Appends a value. `marksGradients`: whether tensors that need a gradient are gathered and marked. Throws UsageError for a tensor that
/// cannot be sent (or any, where `functions` is null), for an empty reference, and beyond 64 lists in each other.
void writeValue(SentValue& sent, const RemoteValue& value, const AutogradFunctions* functions, References& references, bool marksGradients);

/// Reads what `writeValue` wrote. Tensors take over their parts, beginning with `parts[next]`. `needGradient` gets those that were marked.
/// Throws Error for damaged bytes, and for parts of other sizes than their tensors need.
[[nodiscard]] RemoteValue readValue(Unpacker& head, std::vector<HeldBuffer>& parts, std::size_t& next,
                                    std::vector<TensorHandle>& needGradient, const AutogradFunctions* functions, References& references);

/// A tensor, or none.
void writeTensor(Packer& head, std::vector<HeldBuffer>& parts, const TensorHandle& tensor, const AutogradFunctions& functions);
[[nodiscard]] TensorHandle readTensor(Unpacker& head, std::vector<HeldBuffer>& parts, std::size_t& next,
                                      const AutogradFunctions& functions);

}  // namespace pw
