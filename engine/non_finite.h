#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "backends/stages/stage_module.h"
#include "simulator/plan/plan.h"

namespace pw {

/// When in a step a number was made, so that ranks can agree on the first infinite or NaN one: a smaller position is earlier. Forwards come
/// first, then the loss, backwards, and the gradients of parameters, whose microbatch is unknown; each by microbatch over all replicas, and
/// within one in the order of the data flow.
using NumberPosition = std::uint64_t;
inline constexpr NumberPosition kAllFinite = ~NumberPosition{0};  ///< later than every number
/// Whether it is that of a parameter's gradient, which does not tell the microbatch; `GradientWatch` finds it.
[[nodiscard]] bool lacksMicrobatch(NumberPosition position);

/// The stages of a process, whose values are checked. What it refers to must outlive it.
struct CheckedStages {
  const Plan& plan;
  const std::map<Stage, StageModule*>& modules;
  JobRank process;
};

/// Where this process first had a non-finite number in the step, as far as it knows. `gradients`: a stage whose gradients are not finite;
/// `loss`: the process's part of the step's loss.
[[nodiscard]] NumberPosition firstNonFinite(const CheckedStages& stages, std::optional<Stage> gradients, double loss);

/// Says what was not finite: a sentence without its end that names the action or the parameter. For the process that had the first one.
[[nodiscard]] std::string whatIsNotFinite(const CheckedStages& stages, double loss);

/// Finds, while a step is repeated, the microbatch that makes a parameter's gradient infinite or NaN. Parameters must be those of the
/// step; buffers may have changed since, so it may find nothing.
class GradientWatch {
 public:
  explicit GradientWatch(const CheckedStages& stages) : stages_(stages) {}
  /// After every action of the process; costs one pass over the gradients of the action's stage.
  void look(const Action& action);
  [[nodiscard]] NumberPosition position() const { return position_; }
  /// As `whatIsNotFinite`; empty where nothing was found.
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  CheckedStages stages_;
  NumberPosition position_ = kAllFinite;
  std::string what_;
};

}  // namespace pw
