#include <pybind11/gil_safe_call_once.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "app/python/bindings.h"
#include "engine/processes/failure.h"
#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {
namespace {

bool isLower(char c) { return c >= 'a' && c <= 'z'; }

using Names = std::map<std::string, std::string>;

/// Options whose arguments have other names here.
const Names& argumentNames() {
  static const Names names{{"--estimate", "cluster"},       {"--load-library", "libraries"},       {"--split", "splits"},
                           {"--no-graphs", "graphs=False"}, {"--no-recompute", "recompute=False"}, {"--no-tf32", "tf32=False"},
                           {"--no-zero1", "zero1=False"}};
  return names;
}

/// The argument that an option is: `memory_limit` for `--memory-limit`.
std::string argumentOf(const std::string& option, const Names& own) {
  for (const Names& names : {own, argumentNames()}) {
    if (const auto named = names.find(option); named != names.end()) return named->second;
  }
  std::string name = option.substr(2);
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace

/// Commands in backquotes, and `--help`, which only the program has, stay.
std::string spelled(const std::string& sentence, const Names& own) {
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
    std::size_t end = at + 2;
    while (end < sentence.size() && (isLower(sentence[end]) || sentence[end] == '-' || (sentence[end] >= '0' && sentence[end] <= '9')))
      ++end;
    text += argumentOf(sentence.substr(at, end - at), own);
    at = end - 1;
  }
  return text;
}

void bindErrors(py::module_& m) {
  m.def("spelled", &spelled, py::arg("sentence"), py::arg("own") = Names());
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
  py::module_::import("warnings").attr("warn")(spelled(sentence));
}

}  // namespace pw::python
