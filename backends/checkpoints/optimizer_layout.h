#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/checkpoints/pickle.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// What it takes to write an optimizer's state as torch.optim lays it out.
struct OptimizerLayout {
  OptimizerSpec spec;
  int steps = 0;                        ///< done so far, which the learning rate depends on
  int updates = 0;                      ///< of the parameters: in a step whose gradients were not finite there is none
  std::vector<std::string> parameters;  ///< names, in the order of `model.parameters()`
};

/// The optimizer that wrote a state. Its number in checkpoints stands in `factsOf(kind)`.
struct OptimizerState {
  OptimizerSpec::Kind kind = OptimizerSpec::Kind::Sgd;
  bool hasMomentum = false;

  bool operator==(const OptimizerState&) const = default;
};
[[nodiscard]] OptimizerState stateOf(const OptimizerSpec& spec);
[[nodiscard]] int numberOf(const OptimizerState& state);
/// `sgd`, `sgd with momentum`, `adam`, …
[[nodiscard]] std::string nameOf(const OptimizerState& state);
/// The state of this number in checkpoints; nothing for one that this version does not know.
[[nodiscard]] std::optional<OptimizerState> optimizerState(double number);
/// The state in a file with tensors of these names (`exp_avg/NAME`, …); of several that have just these the preferred kind's, else the last
/// one's. Without any it is `sgd`; nothing where no optimizer has just these.
[[nodiscard]] std::optional<OptimizerState> optimizerState(const std::vector<std::string>& tensors, OptimizerSpec::Kind preferred);

/// A parameter group, by name, without `params`: the members that torch.optim of torch 2.11 gives it, each as the opcodes of one object;
/// and the names of its parameters.
struct LayoutGroup {
  std::vector<std::pair<std::string, std::string>> members;
  std::vector<std::string> parameters;
};

/// Those of the optimizer, or the one of all parameters.
[[nodiscard]] std::vector<LayoutGroup> groupsOf(const OptimizerLayout& layout);

/// Opcodes (pickle_write.h) of what `optimizer.load_state_dict` of torch.optim takes: `param_groups`, and `state` by a parameter's index:
/// they are numbered group by group. `tensors`: named `exp_avg/NAME` and so on; a parameter without any has no state. `steps[i]`: where to
/// find the count of updates (float32) of the parameter of that index, for Adam.
[[nodiscard]] std::string optimizerPickle(const OptimizerLayout& layout, const std::vector<pickle::TensorEntry>& tensors,
                                          const std::vector<pickle::TensorEntry>& steps);

}  // namespace pw
