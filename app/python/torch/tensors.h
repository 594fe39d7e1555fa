#pragma once

#include <pybind11/pybind11.h>

#include "backends/torch/autograd/functions.h"

namespace pw::python {

[[nodiscard]] bool isTensor(pybind11::handle object);
/// The tensor behind a torch.Tensor: the same one, with its autograd history. Throws UsageError for anything else. Needs the GIL.
[[nodiscard]] TensorHandle tensorOf(pybind11::handle object);
/// A tensor as Python's torch.Tensor: the object that it came from while that lives. None for null. Needs the GIL.
[[nodiscard]] pybind11::object toPython(const TensorHandle& tensor);

}  // namespace pw::python
