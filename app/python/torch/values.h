#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "engine/remote/future.h"
#include "engine/remote/value.h"

namespace pw::python {

/// A Python object that C++ keeps, and drops on whatever thread; it stays where Python has ended before. Needs the GIL.
[[nodiscard]] std::shared_ptr<void> held(pybind11::object object);
/// That object. Needs the GIL.
[[nodiscard]] pybind11::object heldObject(const std::shared_ptr<void>& object);

/// A pickle and what was taken out of it, `(bytes, [tensor or reference, …])`, as the value of a call: tensors keep their history. Needs
/// the GIL.
[[nodiscard]] RemoteValue sentValue(const pybind11::tuple& pickled);
/// The value of a reference: a tensor as such, so that optimizers can use it, else the object. Needs the GIL.
[[nodiscard]] RemoteValue keptValue(const pybind11::object& object);
/// What these two made, and None for nothing. Throws UsageError for what Python does not send. Needs the GIL.
[[nodiscard]] pybind11::object toPython(const RemoteValue& value);

/// Runs what Python does for another worker. Its exceptions become RemoteError, with the type and the traceback as `describe` gives them,
/// of worker `here` unless they came from further away. Takes the GIL.
template <class Run>
RemoteValue inPython(const std::string& here, const std::shared_ptr<void>& describe, Run run);
[[noreturn]] void throwRemote(pybind11::error_already_set& thrown, const std::string& here, const std::shared_ptr<void>& describe);

template <class Run>
RemoteValue inPython(const std::string& here, const std::shared_ptr<void>& describe, Run run) {
  const pybind11::gil_scoped_acquire acquired;
  try {
    return run();
  } catch (pybind11::error_already_set& thrown) {
    throwRemote(thrown, here, describe);
  }
}

}  // namespace pw::python
