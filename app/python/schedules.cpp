#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/python/bindings.h"
#include "app/python/pictures.h"
#include "engine/planning/inputs/schedule_source.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "schedules/schedule.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

std::vector<std::vector<std::string>> rowsOf(const Schedule& schedule) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : schedule.rows) {
    rows.emplace_back();
    for (const Action& action : row) rows.back().push_back(action == kIdle ? "" : toString(action));
  }
  return rows;
}

std::vector<int> numbers(const std::vector<Rank>& ranks) {
  std::vector<int> list;
  list.reserve(ranks.size());
  for (const Rank rank : ranks) list.push_back(rank.value);
  return list;
}

std::vector<Rank> ranksOf(const std::vector<int>& list) {
  std::vector<Rank> ranks;
  ranks.reserve(list.size());
  for (const int rank : list) ranks.emplace_back(rank);
  return ranks;
}

using PackedAction = std::tuple<int, int, int, bool>;
using Packed = std::tuple<std::string, int, std::vector<int>, std::vector<int>, int, std::vector<std::vector<PackedAction>>, bool>;

Packed packedSchedule(const Schedule& s) {
  std::vector<std::vector<PackedAction>> rows;
  for (const auto& row : s.rows) {
    rows.emplace_back();
    for (const Action& a : row) rows.back().emplace_back(a.stage.value, static_cast<int>(a.kind), a.microbatch.value, a.overlapsNext);
  }
  return {s.name,
          s.microbatches,
          numbers(s.placement.rankOfStage),
          numbers(s.placement.mirrorOfStage),
          s.placement.firstMirrored.value,
          std::move(rows),
          s.lockstep};
}

Schedule unpackedSchedule(const Packed& state) {
  const auto& [name, microbatches, ranks, mirrors, firstMirrored, rows, lockstep] = state;
  Schedule s{name, microbatches, {ranksOf(ranks), ranksOf(mirrors), Microbatch(firstMirrored)}, {}, lockstep};
  for (const auto& row : rows) {
    s.rows.emplace_back();
    for (const auto& [stage, kind, microbatch, overlaps] : row) {
      if (kind < 0 || kind > static_cast<int>(ActionKind::Idle)) throw py::value_error("a pickled Schedule is damaged");
      s.rows.back().push_back({Stage(stage), static_cast<ActionKind>(kind), Microbatch(microbatch), overlaps});
    }
  }
  return s;
}

void bindGenerators(py::module_& m) {
  py::class_<Generator>(m, "ScheduleFamily")
      .def_property_readonly("name", [](const Generator& g) { return g.name; })
      .def_property_readonly("summary", [](const Generator& g) { return g.summary; })
      .def_property_readonly("needs", [](const Generator& g) { return g.needs; })
      .def_property_readonly("chunks", [](const Generator& g) { return g.chunks; })
      .def_property_readonly("placement", [](const Generator& g) { return nameOf(g.placement); })
      .def_property_readonly("torch_name", [](const Generator& g) { return g.torchName; })
      .def("__repr__", [](const Generator& g) { return "<ScheduleFamily " + std::string(g.name) + ">"; });
  m.def("schedules", [] {
    const auto all = generators();
    return std::vector<Generator>(all.begin(), all.end());
  });
  m.def(
      "schedule",
      [](const std::string& name, int ranks, int chunks, int microbatches, int group, bool strict, const std::string& lowered) {
        Schedule schedule = generateFrom(name, {ranks, chunks, microbatches, group, strict});
        return lowered.empty() ? schedule : lower(schedule, valueFor<Lowering>("lowered", lowered));
      },
      py::arg("name"), py::arg("ranks"), py::arg("chunks"), py::arg("microbatches"), py::arg("group"), py::arg("strict"),
      py::arg("lowered"), Released());
}

void bindChecks(py::module_& m) {
  py::class_<Problem>(m, "Problem")
      .def_property_readonly("rank", [](const Problem& p) { return p.rank.value; })
      .def_readonly("position", &Problem::position)
      .def_property_readonly("action", [](const Problem& p) { return p.action == kIdle ? std::string() : toString(p.action); })
      .def_readonly("message", &Problem::message)
      .def_property_readonly("stops", [](const Problem& p) { return nameOf(p.stops); })
      .def("__repr__", [](const Problem& p) { return "<Problem on rank " + std::to_string(p.rank.value) + ": " + p.message + ">"; });
  m.def("check", &check, py::arg("schedule"), Released());
  m.def(
      "check_sizes",
      [](const Schedule& schedule, const std::vector<Bytes>& sends, const std::vector<Bytes>& receives) {
        return checkSizes(schedule, {sends, receives});
      },
      py::arg("schedule"), py::arg("sends"), py::arg("receives"), Released());
}

}  // namespace

void bindSchedules(py::module_& m) {
  py::class_<Schedule>(m, "Schedule")
      .def_readonly("name", &Schedule::name)
      .def_property_readonly("ranks", [](const Schedule& s) { return shapeOf(s).ranks; })
      .def_property_readonly("stages", [](const Schedule& s) { return shapeOf(s).stages; })
      .def_readonly("microbatches", &Schedule::microbatches)
      .def_property_readonly("placement", [](const Schedule& s) { return nameOf(kindOf(s.placement, shapeOf(s))); })
      .def_property_readonly("rank_of_stage", [](const Schedule& s) { return numbers(s.placement.rankOfStage); })
      .def_property_readonly("is_lowered", &isLowered)
      .def_property_readonly("rows", &rowsOf)
      .def(
          "to_csv", [](const Schedule& s, const std::string& letters) { return toCsv(s, valueFor<Letters>("letters", letters)); },
          py::kw_only(), py::arg("letters") = "torch")
      .def_static(
          "from_csv",
          [](const std::string& text, const std::string& name, const std::string& letters) {
            return parseCsv(text, name, name, valueFor<Letters>("letters", letters));
          },
          py::arg("text"), py::kw_only(), py::arg("name") = "custom", py::arg("letters") = "torch", Released())
      .def(
          "lowered", [](const Schedule& s, const std::string& order) { return lower(s, valueFor<Lowering>("order", order)); },
          py::arg("order") = "deferred", Released())
      .def(
          "_repr_html_", [](const Schedule& s) { return pictureOf(s); }, Released())
      .def("__repr__", [](const Schedule& s) { return "<Schedule " + shapeLine(s) + ">"; })
      .def(py::self == py::self)  // NOLINT(misc-redundant-expression): pybind11 defines operator== so
      .def(py::pickle(&packedSchedule, &unpackedSchedule));
  bindGenerators(m);
  bindChecks(m);
}

}  // namespace pw::python
