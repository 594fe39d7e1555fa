#include "app/python/torch/values.h"

#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "app/python/torch/tensors.h"
#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {
namespace {

bool hasEnded() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

/// A call's value has two parts: the pickle and the list of what was taken out.
py::tuple pickled(const RemoteValue::List& value) {
  const RemoteValue::List& given = value.at(1).list();
  py::list items(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) items[i] = toPython(given[i]);
  return py::make_tuple(py::bytes(value.at(0).bytes()), items);
}

}  // namespace

std::shared_ptr<void> held(py::object object) {
  return {object.release().ptr(), [](void* kept) {
            if (hasEnded()) return;
            const py::gil_scoped_acquire acquired;
            Py_DECREF(static_cast<PyObject*>(kept));
          }};
}

py::object heldObject(const std::shared_ptr<void>& object) {
  return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(object.get()));
}

RemoteValue sentValue(const py::tuple& value) {
  RemoteValue::List items;
  for (const py::handle item : value[1]) {
    items.push_back(isTensor(item) ? RemoteValue(tensorOf(item)) : RemoteValue(item.cast<Reference>()));
  }
  return RemoteValue::List{Opaque{value[0].cast<std::string>()}, std::move(items)};
}

RemoteValue keptValue(const py::object& object) {
  if (isTensor(object)) return tensorOf(object);
  return Local{held(object)};
}

py::object toPython(const RemoteValue& value) {
  if (std::holds_alternative<std::monostate>(value.content)) return py::none();
  if (std::holds_alternative<Local>(value.content)) return heldObject(value.object());
  if (std::holds_alternative<Reference>(value.content)) return py::cast(value.reference());
  if (std::holds_alternative<RemoteValue::List>(value.content)) return pickled(value.list());
  return toPython(value.tensor());
}

void throwRemote(py::error_already_set& thrown, const std::string& here, const std::shared_ptr<void>& describe) {
  const auto said = heldObject(describe)(thrown.value()).cast<py::tuple>();
  const auto worker = said[2].cast<std::optional<std::string>>();
  throw RemoteError(said[0].cast<std::string>(), said[1].cast<std::string>(), worker.value_or(here));
}

}  // namespace pw::python
