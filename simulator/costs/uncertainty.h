#pragma once

#include <optional>
#include <string>

#include "schedules/ids.h"

namespace pw {

/// How far off predictions made from a profile or job are, as past runs or the job's own steps showed.
struct Uncertainty {
  double deviation = 0;  ///< relative standard deviation of measured steps around predicted ones
  int runs = 0;          ///< past ones that it is known from; 0: steps of a job, of which half predict the other half
  bool ofJobs = false;   ///< those are jobs: one, and others whose steps were predicted from its times

  bool operator==(const Uncertainty&) const = default;
};

/// Half the width of the interval that holds four of five steps: 1.282 standard deviations of a normal distribution.
[[nodiscard]] Ns errorBar(const Uncertainty& uncertainty, Ns step);

/// Whether intervals of these predictions overlap, so that which is shorter is not known.
[[nodiscard]] bool areIndistinguishable(const Uncertainty& uncertainty, Ns a, Ns b);

/// What it is known from: `4 past runs`, `held-out steps of the job`, `steps of 2 jobs`.
[[nodiscard]] std::string sourceOf(const Uncertainty& uncertainty);

/// `± 3.2 % (4 past runs)`.
[[nodiscard]] std::string formatErrorBar(const Uncertainty& uncertainty);

/// `2.31 s`, and with an error bar `2.31 s ± 0.07 s (4 past runs)`.
[[nodiscard]] std::string formatPrediction(Ns step, const std::optional<Uncertainty>& uncertainty);

}  // namespace pw
