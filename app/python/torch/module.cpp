#include <pybind11/pybind11.h>

#include "app/python/torch/bindings.h"

PYBIND11_MODULE(_pipewright_torch, m) {
  using namespace pw::python;
  (void)m;
}
