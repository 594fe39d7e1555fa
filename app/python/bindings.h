#pragma once
// The parts of the extension module. Each adds its classes and functions; the Python files of the package say what they mean.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "schedules/error.h"
#include "schedules/named_values.h"
#include "schedules/quantity.h"

/// Times [ns] and sizes are whole numbers in Python.
namespace pybind11::detail {

template <class Tag>
struct type_caster<pw::Quantity<Tag>> {
  PYBIND11_TYPE_CASTER(pw::Quantity<Tag>, const_name("int"));

  bool load(handle source, bool convert) {
    make_caster<std::int64_t> number;
    if (!number.load(source, convert)) return false;
    value = pw::Quantity<Tag>(cast_op<std::int64_t>(number));
    return true;
  }
  static handle cast(pw::Quantity<Tag> quantity, return_value_policy policy, handle parent) {
    return make_caster<std::int64_t>::cast(quantity.value, policy, parent);
  }
};

}  // namespace pybind11::detail

namespace pw::python {

void bindErrors(pybind11::module_& module);       ///< first
void bindSchedules(pybind11::module_& module);    ///< schedules, checks
void bindTraces(pybind11::module_& module);       ///< what happened in a step, and drawings of it
void bindPlans(pybind11::module_& module);        ///< plans of models
void bindModels(pybind11::module_& module);       ///< inspect, profile, plan
void bindJobs(pybind11::module_& module);         ///< jobs of traces, layouts, hangs, gates
void bindSearches(pybind11::module_& module);     ///< search
void bindStores(pybind11::module_& module);       ///< runs and comparisons
void bindStudies(pybind11::module_& module);      ///< studies and their results
void bindPredictions(pybind11::module_& module);  ///< simulate

/// A plan that does not fit the memory limit; `TooLargeError` of Python.
class TooLarge : public Error {
 public:
  using Error::Error;
};

/// An error's sentence as Python spells it: options of the command line are arguments. `own`: names of options in the function that was
/// called, where they are other than elsewhere.
std::string spelled(const std::string& sentence, const std::map<std::string, std::string>& own = {});

/// A warning of Python; the calling thread has released the GIL.
void warn(const std::string& sentence);

/// The value of an argument that names one of an enum's. Throws UsageError with all names for another.
template <class Enum>
Enum valueFor(std::string_view argument, const std::string& name) {
  if (const auto value = valueNamed<Enum>(name)) return *value;
  throw UsageError(std::string(argument) + " is \"" + name + "\"; use " + namesOf<Enum>(", "));
}

}  // namespace pw::python
