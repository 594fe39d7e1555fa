#pragma once

#include <vector>

#include "backends/messages/communicator.h"
#include "simulator/model/model_graph.h"

namespace pw {

// Arithmetic on buffers of floating point numbers (float32, float64, float16, bfloat16). All but `allFinite` throw Error naming any other
// type.

/// into += what, element by element; both of the same size.
void addInto(DType dtype, Buffer into, Buffer what);

/// Summed in double precision, in the order of the elements.
[[nodiscard]] double sumOfSquares(DType dtype, Buffer buffer);

/// Whether none is infinite or NaN; one pass at the speed of memory. True of integers and booleans.
[[nodiscard]] bool allFinite(DType dtype, Buffer buffer);

[[nodiscard]] std::vector<double> toDoubles(DType dtype, Buffer buffer);

}  // namespace pw
