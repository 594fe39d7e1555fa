#include "simulator/report/certificate.h"

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace pw {

namespace {

std::string percentOf(double gap) { return gap < 0.001 ? fmt::format("{:.2g}", 100 * gap) : fmt::format("{:.1f}", 100 * gap); }

}  // namespace

std::string gapText(const Certificate& certificate) {
  return certificate.optimal() ? "optimal" : fmt::format("gap {} %", percentOf(certificate.gap()));
}

std::string toString(const Certificate& certificate) {
  const std::string_view clock = certificate.clock == StepClock::Flush ? "makespan" : "window";
  std::string text = certificate.optimal() ? fmt::format("proven: no order has a shorter {}", clock)
                                           : fmt::format("no order has a {} more than {} % shorter", clock, percentOf(certificate.gap()));
  if (certificate.recomputed.empty()) return text;
  text += certificate.recomputed.size() == 1 ? "; recomputes stage" : "; recomputes stages";
  for (const Stage stage : certificate.recomputed) text += fmt::format(" {}", stage.value);
  return text;
}

std::string toJson(const Certificate& certificate) {
  nlohmann::ordered_json json{{"objective", nameOf(certificate.clock)},
                              {"time_ns", certificate.time},
                              {"lower_bound_ns", certificate.lowerBound},
                              {"gap", certificate.gap()},
                              {"optimal", certificate.optimal()},
                              {"found_by", certificate.foundBy},
                              {"recomputed_stages", nlohmann::ordered_json::array()}};
  for (const Stage stage : certificate.recomputed) json["recomputed_stages"].push_back(stage.value);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pw
