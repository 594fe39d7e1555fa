#include <pybind11/pybind11.h>

#include "app/python/torch/bindings.h"

PYBIND11_MODULE(_pipewright_torch, m) {
  using namespace pw::python;
  pybind11::module_::import("pipewright._pipewright");  // which says what its errors are in Python
  bindErrors(m);
  bindResults(m);
  bindWorker(m);
  bindAutograd(m);
  bindTrainer(m);
}
