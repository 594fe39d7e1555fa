#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/split_report.h"
#include "engine/trial.h"

namespace pw::cli {

/// Whether a step gives the same results with any microbatch size.
enum class Sameness : std::uint8_t {
  Yes,
  Counted,  ///< where microbatches hold as many targets
  Buffers,  ///< loss and gradients do, buffers do not
  Unknown,
  No,
};

/// `yes`, `counted`, `buffers`, `unknown`, `no`.
[[nodiscard]] std::string_view name(Sameness sameness);

/// The overall result of the findings.
struct SplitVerdict {
  Sameness same = Sameness::Yes;
  bool draws = false;      ///< apart from random numbers
  std::string why;         ///< of Unknown: the operators, or what else is not known
  bool disagrees = false;  ///< the trial contradicts the operators' rules
  std::string sentence;    ///< the answer as text, without the full stop
};

/// By the operators' rules, and by what was tried where it was: `trials` may be empty.
[[nodiscard]] SplitVerdict splitVerdict(const std::vector<Finding>& findings, const std::vector<Trial>& trials);

/// `Tried: 1, 2 and 4 microbatches of a random batch of 4 (…): …`, a line for each number of microbatches that differs.
[[nodiscard]] std::string trialText(const Trial& trial);

}  // namespace pw::cli
