#include "app/python/torch/tensors.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {

bool isTensor(py::handle object) { return THPVariable_Check(object.ptr()); }

TensorHandle tensorOf(py::handle object) {
  if (!isTensor(object)) throw UsageError("This is not a torch.Tensor: " + std::string(py::str(py::type::of(object))) + ".");
  return std::make_shared<at::Tensor>(THPVariable_Unpack(object.ptr()));
}

py::object toPython(const TensorHandle& tensor) {
  if (tensor == nullptr) return py::none();
  PyObject* wrapped = THPVariable_Wrap(*std::static_pointer_cast<at::Tensor>(tensor));
  if (wrapped == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(wrapped);
}

}  // namespace pw::python
