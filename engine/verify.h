#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/torch/backend.h"
#include "engine/step_log.h"
#include "simulator/plan/plan.h"

namespace pw {

/// The difference of a pipelined step from the same step on one rank.
struct Verification {
  bool equal = true;
  double lossDifference = 0;
  double boundaryDifference = 0;  ///< largest absolute, over values that crossed between stages and their gradients
  double gradientDifference = 0;  ///< largest absolute, over parameters
  bool notFinite = false;         ///< values are NaN or infinite on one rank too: nothing can be compared, and `equal` is false
  std::string firstDifference;    ///< sentence; empty when equal
  int position = 0;               ///< position of the first difference in the order of computation, to find the first over several ranks

  bool operator==(const Verification&) const = default;
};

/// Joins two ranks' results.
[[nodiscard]] Verification joinVerifications(const Verification& a, const Verification& b);

/// The plan's model as one stage on one rank, same microbatches: what pipelined results are compared with.
[[nodiscard]] Plan singleRankPlan(const ModelGraph& graph, const Plan& plan);

/// Compares one step of this rank's stages, value by value, with the same step on one rank, which it computes first (float32: gradients and
/// boundary values within 1e-5 relative and 4e-5 absolute, the loss within 1.3e-6 and 1e-5: torch.testing's tolerances; on a GPU 1e-4 and
/// 1e-5 relative, as kernels there add in varying order; gradients in 16 bits also by the last place of a tensor's largest number, times
/// the root of the number of microbatches).
class Verifier {
 public:
  /// Computes the step `step` of the whole model in this process, with the options of this rank's stages.
  Verifier(const ModelGraph& graph, const Plan& plan, const StageOptions& options, int step, std::chrono::milliseconds deadline,
           const TorchBackend& torch);

  /// The observer to give to this rank's stages.
  void observe(const std::string& name, Microbatch microbatch, DType dtype, Buffer value);
  void compareGradients(StageModule& stage);
  void compareLoss(double loss);
  [[nodiscard]] const Verification& result() const { return result_; }

 private:
  void compare(const std::string& what, const std::vector<double>& actual, const std::vector<double>& expected, double rounding,
               double& largest, int position);
  void note(const std::string& what, double difference, double allowed, int position);
  void noteNan(const std::string& what, int position);

  const Plan& plan_;
  double relative_;  // allowed difference
  int firstMicrobatch_;
  std::map<std::pair<std::string, int>, std::vector<double>> values_;  // of the reference, by name and microbatch of the whole batch
  std::map<std::string, int> positions_;                               // of values, in the order of computation
  std::map<std::string, std::vector<double>> gradients_;
  double loss_ = 0;
  Verification result_;
};

}  // namespace pw
