#pragma once
// The parts of the extension module that needs torch. Each adds its classes and functions; the Python files of the package say what they
// mean.

#include <pybind11/pybind11.h>

namespace pw::python {

void bindErrors(pybind11::module_& module);    ///< first
void bindResults(pybind11::module_& module);   ///< results of calls, references
void bindWorker(pybind11::module_& module);    ///< a process as a worker: calls
void bindAutograd(pybind11::module_& module);  ///< contexts, backward passes, optimizers
void bindTrainer(pybind11::module_& module);   ///< trainings whose steps come from Python

}  // namespace pw::python
