#pragma once

// Internal to the module: one worker's part of a distributed backward pass. Includes LibTorch.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "backends/torch/autograd/nodes.h"

namespace pw {

/// The local engine of a pass. Nodes are run as LibTorch's engine runs them (hooks, checks, order by sequence number), but where gradients
/// come in one after the other from other workers, and go to the sink instead of `.grad`.
class LocalPass {
 public:
  LocalPass(const std::vector<TensorHandle>& roots, bool keepGraph);

  [[nodiscard]] std::vector<AutogradMessageId> reach(const std::vector<NodeHandle>& sends, bool fromRoots);
  void expect(const std::vector<NodeHandle>& sends);
  void run(const NodeHandle& send, const std::vector<TensorHandle>& gradients, const GradientSink& sink);
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }
  [[nodiscard]] bool waitsFor(const NodeHandle& send) const;

 private:
  using Node = torch::autograd::Node;
  struct Inputs {
    torch::autograd::InputBuffer buffer;
    int arrived = 0;
  };
  struct Ready {
    Node* node;
    torch::autograd::InputBuffer inputs;
    bool operator<(const Ready& other) const { return node->sequence_nr() < other.node->sequence_nr(); }
  };

  void put(const torch::autograd::Edge& edge, at::Tensor&& gradient, Node* from);
  void makeReady(Node* node, torch::autograd::InputBuffer&& inputs) {
    ready_.push_back({node, std::move(inputs)}), std::push_heap(ready_.begin(), ready_.end());
  }
  void execute(Node& node, torch::autograd::InputBuffer&& inputs, const GradientSink& sink);
  void leave(Node& node, torch::autograd::variable_list&& inputs, const GradientSink& sink) const;

  void keep(const std::vector<NodeHandle>& sends) { kept_.insert(kept_.end(), sends.begin(), sends.end()); }

  bool keepGraph_;
  bool started_ = false;
  torch::autograd::edge_list roots_;
  torch::autograd::variable_list rootGradients_;
  std::vector<NodeHandle> kept_;               ///< with `roots_`, all that the pointers below may point to: the context may end meanwhile
  std::unordered_set<Node*> expectedSends_;    ///< send functions that will get gradients; they are in `kept_`
  std::unordered_map<Node*, int> expected_;    ///< gradients that each node will get
  std::unordered_map<Node*, Inputs> waiting_;  ///< has some of them
  std::vector<Ready> ready_;                   ///< a heap
  std::unordered_set<Node*> reached_;
};

}  // namespace pw
