#include "simulator/report/certificate.h"

#include <string_view>

#include <fmt/format.h>

namespace pw {

std::string toString(const Certificate& certificate) {
  const std::string_view clock = certificate.clock == Clock::Flush ? "makespan" : "window";
  std::string text = certificate.optimal() ? fmt::format("proven: no order has a shorter {}", clock)
                                           : fmt::format("no order has a {} more than {:.1f} % shorter", clock, 100 * certificate.gap());
  if (certificate.recomputed.empty()) return text;
  text += certificate.recomputed.size() == 1 ? "; recomputes stage" : "; recomputes stages";
  for (const Stage stage : certificate.recomputed) text += fmt::format(" {}", stage.value);
  return text;
}

}  // namespace pw
