#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/report/split_report.h"

namespace pw {

/// Whether a step gives the same results with any microbatch size; each answer outweighs those before it.
enum class Sameness : std::uint8_t {
  Yes,
  Counted,  ///< where microbatches hold as many targets
  Buffers,  ///< loss and gradients do, buffers do not
  Unknown,
  No,
};

/// `yes`, `counted`, `buffers`, `unknown`, `no`.
[[nodiscard]] std::string_view nameOf(Sameness sameness);

/// The overall result of the findings.
struct SplitVerdict {
  Sameness same = Sameness::Yes;
  bool draws = false;      ///< apart from random numbers
  std::string why;         ///< of Unknown: the operators, or what else is not known
  bool disagrees = false;  ///< what was tried contradicts the operators' rules, see engine/run/trial_verdict.h
  std::string sentence;    ///< the answer as text, without the full stop

  bool operator==(const SplitVerdict&) const = default;
};

/// By the operators' rules.
[[nodiscard]] SplitVerdict splitVerdict(const std::vector<Finding>& findings);

}  // namespace pw
