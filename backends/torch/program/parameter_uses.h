#pragma once

#include <set>
#include <vector>

#include "backends/torch/program/steps.h"

/// Internal to the programs of program.h: which steps compute gradients of parameters.
namespace pw {

/// Follows trained parameters, and views of them, through the steps of a program: those whose weight gradients can be computed apart get a
/// rule, of all others autograd adds the gradient.
class ParameterUses {
 public:
  /// Both must outlive this, and `options.weights` the steps.
  ParameterUses(const ModelGraph& graph, const ProgramOptions& options);

  /// Gives a prepared step, not of a sub-graph, its rule if it has one.
  void separate(ProgramStep& step);
  /// Notes a step without a rule, also of a sub-graph: autograd adds gradients of the parameters that it reads.
  void noteAutograd(const Node& node);
  /// Views of parameters that leave the stage: autograd adds what comes back for them.
  void noteKept();

  [[nodiscard]] const std::vector<ValueId>& addedByAutograd() const { return addedByAutograd_; }

 private:
  void followView(const ProgramStep& step);

  const ModelGraph& graph_;
  const ProgramOptions& options_;
  std::vector<ParameterGradient> gradients_;  // by value, whole views of parameters included
  std::vector<bool> parameters_;              // by value, whether it has such a gradient
  std::set<const Node*> views_;
  std::vector<ValueId> addedByAutograd_;
};

}  // namespace pw
