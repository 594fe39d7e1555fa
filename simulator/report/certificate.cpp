#include "simulator/report/certificate.h"

#include <string_view>

#include <fmt/format.h>

namespace pw {

std::string toString(const Certificate& certificate) {
  const std::string_view clock = certificate.clock == Clock::Flush ? "makespan" : "window";
  const double gap = 100 * certificate.gap();
  const std::string percent = gap < 0.1 ? fmt::format("{:.2g}", gap) : fmt::format("{:.1f}", gap);
  std::string text = certificate.optimal() ? fmt::format("proven: no order has a shorter {}", clock)
                                           : fmt::format("no order has a {} more than {} % shorter", clock, percent);
  if (certificate.recomputed.empty()) return text;
  text += certificate.recomputed.size() == 1 ? "; recomputes stage" : "; recomputes stages";
  for (const Stage stage : certificate.recomputed) text += fmt::format(" {}", stage.value);
  return text;
}

}  // namespace pw
