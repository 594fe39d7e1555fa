#include <pybind11/pybind11.h>

#include <exception>

#include "app/python/torch/bindings.h"
#include "engine/remote/future.h"

namespace py = pybind11;

namespace pw::python {

void bindErrors(py::module_&) {
  // The class is the package's, as it is made together with the class of what was thrown.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const RemoteError& error) {
      const py::object raised =
          py::module_::import("pipewright._remote_errors").attr("remote_error")(error.type(), error.text(), error.worker());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    }
  });
}

}  // namespace pw::python
