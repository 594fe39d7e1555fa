#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulator/job/job.h"
#include "simulator/job/measured.h"

namespace pw {

/// Of each measured step, how long before its first action or operation the last of the step before ended, at least 0. `kUnknownTime` of
/// the first, of steps that are not on one clock, beyond `kMostSum`, and where the numbers in names say that steps between them are not in
/// the recording. Where others train, steps without backwards evaluate: they are between steps, and of their own it is not known.
[[nodiscard]] std::vector<Ns> timesBefore(const MeasuredJob& measured);

/// What ranks do between steps is in none of them: they load data, evaluate, or write checkpoints.
struct BetweenSteps {
  Ns usual = 0, longest = 0;      ///< median, and most
  double share = 0;               ///< of the time that these steps and what is before them take together
  std::size_t longestBefore = 0;  ///< step of the job
  std::size_t count = 0;

  bool operator==(const BetweenSteps&) const = default;
};

/// Of the steps that stand for the job; nothing where none of their times before them is known.
[[nodiscard]] std::optional<BetweenSteps> betweenSteps(const Job& job);

/// A sentence; empty where it is nothing, or less than a hundredth of the time.
[[nodiscard]] std::string betweenText(const Job& job);

}  // namespace pw
