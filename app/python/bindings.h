#pragma once
// The parts of the extension module. Each adds its classes and functions; the Python files of the package say what they mean.

#include <pybind11/pybind11.h>

namespace pw::python {

void bindErrors(pybind11::module_& module);       ///< first
void bindSchedules(pybind11::module_& module);    ///< schedules, checks
void bindTraces(pybind11::module_& module);       ///< what happened in a step, and drawings of it
void bindPlans(pybind11::module_& module);        ///< plans of models
void bindModels(pybind11::module_& module);       ///< inspect, profile, plan
void bindSearches(pybind11::module_& module);     ///< search
void bindStores(pybind11::module_& module);       ///< runs and comparisons
void bindStudies(pybind11::module_& module);      ///< studies and their results
void bindPredictions(pybind11::module_& module);  ///< simulate

}  // namespace pw::python
