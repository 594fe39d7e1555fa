#include <pybind11/pybind11.h>

#include "app/python/bindings.h"
#include "backends/host/installation.h"

PYBIND11_MODULE(_pipewright, m) {
  using namespace pw::python;
  m.attr("__version__") = PW_VERSION;
  m.def("program", &pw::ownPath);
  m.def("resource_folder", &pw::resourceFolder);
  m.def("is_installed", [] { return pw::installPrefix().has_value(); });
  bindErrors(m);
  bindSchedules(m);
  bindTraces(m);
  bindPlans(m);
  bindJobs(m);
  bindPredictions(m);
  bindModels(m);
  bindSearches(m);
  bindStores(m);
  bindStudies(m);
}
