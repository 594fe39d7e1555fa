#pragma once

// Messages that torch's pipelines exchange before their first step. For use in this folder only.

#include <cstdint>
#include <vector>

#include "simulator/hang/recording.h"

namespace pw::dumps {

/// The shape of a message's only tensor, as far as messages of the set-up have one of their own.
enum class Form : std::uint8_t {
  Other,
  Number,  ///< float32 without dimensions: no boundary of stages has this, for it has no microbatch
  One,     ///< float32 of shape [1]
  Length,  ///< int64 of shape [1]
  Bytes,   ///< uint8 with one dimension
};

/// Sets `setsUp` of the messages that torch.distributed.pipelining sends for itself (torch 2.5 to 2.11, `_get_init_p2p_neighbors_ops` and
/// `_shape_inference`): the greeting of neighbours, in which a rank sends numbers and receives tensors of one element; and shapes as
/// objects, in which a length comes before bytes. They come when a schedule object runs its first step, and again with each other schedule
/// object, so they are found anywhere. `forms`: of each operation. Cost: linear.
void markSetUp(std::vector<hang::RecordedOp>& ops, const std::vector<Form>& forms);

}  // namespace pw::dumps
