#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <string>

#include "app/python/bindings.h"
#include "app/python/pictures.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "engine/planning/inputs/schedule_source.h"
#include "simulator/plan/model_cut.h"
#include "simulator/plan/plan.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

}  // namespace

void bindPlans(py::module_& m) {
  py::class_<ModelCut>(m, "ModelCut");
  py::class_<Plan>(m, "Plan")
      .def_readonly("model", &Plan::modelName)
      .def_property_readonly("_cut", [](const Plan& p) { return cutOf(p); })
      .def_readonly("model_files", &Plan::modelFiles)
      .def_property_readonly("ranks", [](const Plan& p) { return shapeOf(p.schedule).ranks; })
      .def_property_readonly("stages", [](const Plan& p) { return shapeOf(p.schedule).stages; })
      .def_property_readonly("microbatches", [](const Plan& p) { return p.schedule.microbatches; })
      .def_property_readonly("world_size", &worldSize)
      .def_readonly("replicas", &Plan::replicas)
      .def_readonly("microbatch", &Plan::microbatchSize)
      .def_readonly("batch", &Plan::batch)
      .def_property_readonly("loss", [](const Plan& plan) { return toString(plan.loss); })
      .def_readonly("splits", &Plan::splitNames)
      .def_readonly("schedule", &Plan::schedule)
      .def_property_readonly("optimizer",
                             [](const Plan& p) { return p.optimizer ? std::string(nameOf(p.optimizer->update.kind)) : std::string(); })
      .def("to_json", py::overload_cast<const Plan&>(&toJson), Released())
      .def_static(
          "from_json", [](const std::string& text) { return parsePlan(text, "The plan"); }, py::arg("text"), Released())
      .def(
          "save", [](const Plan& p, const std::filesystem::path& path) { writeFile(path, toJson(p)); }, py::arg("path"), Released())
      .def_static(
          "load", [](const std::filesystem::path& path) { return loadPlan(path); }, py::arg("path"), Released())
      .def(
          "_repr_html_", [](const Plan& p) { return pictureOf(p); }, Released())
      .def("__repr__", [](const Plan& p) { return "<Plan of " + p.modelName + ", " + shapeLine(p.schedule) + ">"; })
      .def(py::self == py::self)  // NOLINT(misc-redundant-expression): pybind11 defines operator== so
      .def(py::pickle([](const Plan& p) { return toJson(p); }, [](const std::string& text) { return parsePlan(text, "A pickled plan"); }));
}

}  // namespace pw::python
