#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "app/python/bindings.h"
#include "app/python/signals.h"
#include "backends/store/study_store.h"
#include "engine/planning/study_run.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

/// Called with what is done of all; false ends the study.
using StudyProgress = std::function<bool(std::int64_t done, std::int64_t all)>;

/// A row by the names of the store's columns.
py::dict dictOf(const StudyRow& row) {
  py::dict dict;
  for (const StudyField& field : fieldsOf(row)) {
    std::visit([&](const auto& value) { dict[py::str(std::string(field.name))] = value; }, field.value);
  }
  return dict;
}

py::list dictsOf(const std::vector<StudyRow>& rows) {
  py::list list;
  for (const StudyRow& row : rows) list.append(dictOf(row));
  return list;
}

/// The GIL is held: `visit` makes Python objects.
py::list allRows(const StudyStore& store) {
  py::list list;
  store.forEach([&](const StudyRow& row) { list.append(dictOf(row)); });
  return list;
}

/// `folder`: what the study's paths are relative to. Stores what is missing of a shard; an interrupt or `progress` ends it early.
std::shared_ptr<StudyStore> studied(const std::string& text, const std::string& source, const std::string& path, const std::string& folder,
                                    const std::string& shard, int threads, const StudyProgress& progress) {
  auto store = std::make_shared<StudyStore>(path, text, studyInputs(parseStudy(text, source), folder));
  PendingSignals signals;
  const auto shouldContinue = signals.shouldContinue();
  StudyEffort effort;
  if (!shard.empty()) effort.shard = parseShard(shard);
  effort.threads = threads;
  effort.folder = folder;
  effort.shouldContinue = [&](std::int64_t done, std::int64_t all) { return shouldContinue(0) && (!progress || progress(done, all)); };
  static_cast<void>(runStudy(*store, effort));
  signals.rethrow();
  return store;
}

}  // namespace

void bindStudies(py::module_& m) {
  py::class_<StudyStore, std::shared_ptr<StudyStore>>(m, "StudyStore")
      .def(py::init<const std::string&>(), Released())
      .def_property_readonly("text", &StudyStore::text)
      .def_property_readonly("points", [](const StudyStore& s) { return pointsOf(s.study()); })
      .def("counts",
           [](const StudyStore& s) {
             const StudyCounts c = s.counts();
             return py::make_tuple(c.done, c.fitting, c.tooLarge, c.impossible);
           })
      .def("rows", &allRows)
      .def("best", [](const StudyStore& s, int most) { return dictsOf(s.best(most)); })
      .def("best_of_ranks", [](const StudyStore& s) { return dictsOf(s.bestOfRanks()); })
      .def("problems", &StudyStore::problems)
      .def("merge", &StudyStore::merge, Released());
  m.def("study", &studied, Released());
}

}  // namespace pw::python
