#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/stages/stage_module.h"
#include "backends/torch/program/program.h"

namespace pw {

/// Looks for numbers that are not finite in what one stage computes in a step: on the host in all values that leave it (one pass at memory
/// speed); with `everyOperator` in every operator's results, forward and backward, on any device, which is slow. Not thread safe. Must
/// outlive the backwards it watches.
class NumberWatch {
 public:
  NumberWatch(const ModelGraph& graph, bool everyOperator) : graph_(graph), everyOperator_(everyOperator) {}
  NumberWatch(const NumberWatch&) = delete;
  NumberWatch& operator=(const NumberWatch&) = delete;

  /// Forgets the step before.
  void beginStep();
  /// Attributes what is seen from now on to this action.
  void begin(ActionKind kind, Microbatch microbatch);
  [[nodiscard]] bool everyOperator() const { return everyOperator_; }

  /// Checks a value or gradient that leaves the stage. Infinities in values without gradient, such as masks, are ignored.
  void see(const std::string& what, const at::Tensor& value, bool hasGradient);
  /// Checks the parameters' gradients so far, after a backward.
  void see(const std::vector<ParameterView>& parameters);
  /// Checks an operator's results, and from now on its backward; for RunOptions::inspect.
  void see(const Node& node, const Frame& frame);
  /// Records a known non-finite number.
  void note(ActionKind kind, Microbatch microbatch, const std::string& what);

  /// The first microbatch's of the forwards, otherwise of the backwards.
  [[nodiscard]] std::optional<NonFiniteValue> first() const;

 private:
  struct Hook;
  using Place = std::pair<bool, Microbatch>;  // whether backward

  [[nodiscard]] Place here() const { return {now_.kind != ActionKind::Forward, now_.microbatch}; }
  void seeForward(const Node& node, const Frame& frame);
  void hook(const Node& node, const at::Tensor& output);

  const ModelGraph& graph_;
  bool everyOperator_;
  NonFiniteValue now_;
  std::map<Place, NonFiniteValue> seen_;
  std::map<Place, NonFiniteValue> infinities_;  // made by an operator; they may be intended
  std::unordered_set<const void*> hooked_;      // functions of autograd, of the forward that runs
};

}  // namespace pw
