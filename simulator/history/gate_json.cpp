#include "simulator/history/gate_json.h"

#include <nlohmann/json.hpp>

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

Json jsonOf(const Change& change) {
  return {{"before_ns", change.before}, {"after_ns", change.after}, {"slower", change.slower}, {"low", change.low}, {"high", change.high}};
}

}  // namespace

std::string gateJson(const GateReport& report) {
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < report.stages.size(); ++stage) {
    Json part{{"stage", stage}};
    part.update(jsonOf(report.stages[stage]));
    stages.push_back(part);
  }
  Json slower = Json::array();
  for (const Stage stage : report.slower) slower.push_back(stage.value);
  return Json{{"verdict", nameOf(report.verdict)},
              {"sentence", gateText(report)},
              {"limit", report.limit},
              {"step", jsonOf(report.step)},
              {"by_stage", stages},
              {"slower_stages", slower},
              {"runs_before", report.runsBefore},
              {"runs_after", report.runsAfter},
              {"units", report.runsAreUnits ? "runs" : "parts of runs"}}
      .dump(2);
}

}  // namespace pw
