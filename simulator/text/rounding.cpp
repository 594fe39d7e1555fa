#include "simulator/text/rounding.h"

#include <cmath>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {

Ns nsOf(double ns, std::string_view what) {
  if (!(ns >= 0 && ns <= kLongestTime)) {
    throw UsageError(
        fmt::format("{} would take {:.3g} s, and a time can be at most {:.0e} s; correct the values in the cluster, profile or plan", what,
                    ns / 1e9, kLongestTime / 1e9));
  }
  return static_cast<Ns>(std::llround(ns));
}

Ns scaled(Ns time, double factor) { return factor == 1.0 ? time : static_cast<Ns>(std::llround(static_cast<double>(time) * factor)); }

}  // namespace pw
