#include <pybind11/gil_safe_call_once.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <utility>

#include "app/python/bindings.h"
#include "engine/processes/failure.h"
#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {
namespace {

bool isLower(char c) { return c >= 'a' && c <= 'z'; }

/// An error's sentence as Python spells it: options of the command line are arguments here, `memory_limit` for `--memory-limit`. Commands
/// in backquotes, and `--help`, which only the program has, stay.
std::string spelled(const std::string& sentence) {
  std::string text;
  bool isCommand = false;
  for (std::size_t at = 0; at < sentence.size(); ++at) {
    isCommand = isCommand != (sentence[at] == '`');
    const bool isOption = !isCommand && sentence.compare(at, 2, "--") == 0 && sentence.compare(at, 6, "--help") != 0 &&
                          at + 2 < sentence.size() && isLower(sentence[at + 2]) &&
                          (at == 0 || (!isLower(sentence[at - 1]) && sentence[at - 1] != '-'));
    if (!isOption) {
      text += sentence[at];
      continue;
    }
    for (at += 2; at < sentence.size() && (isLower(sentence[at]) || sentence[at] == '-' || (sentence[at] >= '0' && sentence[at] <= '9'));
         ++at)
      text += sentence[at] == '-' ? '_' : sentence[at];
    --at;
  }
  return text;
}

}  // namespace

void bindErrors(py::module_& m) {
  m.def("spelled", &spelled, py::arg("sentence"));
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> error, usage, large;
  error.call_once_and_store_result([&] { return py::exception<Error>(m, "Error", PyExc_RuntimeError); });
  usage.call_once_and_store_result([&] { return py::exception<UsageError>(m, "UsageError", error.get_stored()); });
  large.call_once_and_store_result([&] { return py::exception<TooLarge>(m, "TooLargeError", error.get_stored()); });
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(std::move(thrown));
    } catch (const Interrupted&) {
      PyErr_SetNone(PyExc_KeyboardInterrupt);
    } catch (const UsageError& e) {
      py::set_error(usage.get_stored(), spelled(e.what()).c_str());
    } catch (const TooLarge& e) {
      py::set_error(large.get_stored(), spelled(e.what()).c_str());
    } catch (const Error& e) {
      py::set_error(error.get_stored(), spelled(e.what()).c_str());
    }
  });
}

void warn(const std::string& sentence) {
  const py::gil_scoped_acquire held;
  py::module_::import("warnings").attr("warn")(sentence);
}

}  // namespace pw::python
