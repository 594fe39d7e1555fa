#include "backends/torch/autograd/local_pass.h"

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "schedules/error.h"

namespace pw {

namespace autograd = torch::autograd;

namespace {

using autograd::variable_list;

/// Visits what can be reached from these nodes and is not in `seen` yet, each node once; `edge` gets every edge that leaves a visited node.
template <class OnNode, class OnEdge>
void walk(std::vector<autograd::Node*> from, std::unordered_set<autograd::Node*>& seen, const OnNode& onNode, const OnEdge& onEdge) {
  std::vector<autograd::Node*> open;
  for (autograd::Node* node : from) {
    if (seen.insert(node).second) open.push_back(node);
  }
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    onNode(node);
    for (const autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      onEdge(edge);
      if (seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
    }
  }
}

std::vector<autograd::Node*> nodesOf(const std::vector<NodeHandle>& sends) {
  std::vector<autograd::Node*> nodes;
  for (const NodeHandle& send : sends) nodes.push_back(&nodeIn(send));
  return nodes;
}

variable_list preHooks(autograd::Node& node, variable_list inputs) {
  for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
  for (const auto& [output, hook] : node.retains_grad_hooks()) inputs = (*hook)(inputs);
  return inputs;
}

variable_list call(autograd::Node& node, variable_list&& buffer, bool keepGraph) {
  variable_list inputs = preHooks(node, std::move(buffer));
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  if (!keepGraph) node.will_release_variables();
  variable_list copy = node.post_hooks().empty() ? variable_list() : inputs;
  variable_list outputs = node(std::move(inputs));
  autograd::validate_outputs(node.next_edges(), outputs, [&](const std::string& problem) {
    return "Function " + node.name() + " returned an invalid gradient: " + problem;
  });
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, copy);
  if (!keepGraph) node.release_variables();
  return outputs;
}

}  // namespace

LocalPass::LocalPass(const std::vector<TensorHandle>& roots, bool keepGraph) : keepGraph_(keepGraph) {
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const at::Tensor& root = tensorIn(roots[i]);
    const std::string which = "Root " + std::to_string(i) + " of the backward pass";
    if (!root.requires_grad()) throw UsageError(which + " needs no gradient; give a loss that was computed from tensors that do.");
    if (root.numel() != 1)
      throw UsageError(which + " has " + std::to_string(root.numel()) + " elements; give a loss of one, such as its sum.");
    roots_.push_back(autograd::impl::gradient_edge(root));
    rootGradients_.push_back(at::ones_like(root.detach()));
  }
}

std::vector<AutogradMessageId> LocalPass::reach(const std::vector<NodeHandle>& sends, bool fromRoots) {
  keep(sends);
  std::vector<Node*> from = nodesOf(sends);
  if (fromRoots) {
    for (const autograd::Edge& root : roots_) from.push_back(root.function.get());
  }
  std::vector<AutogradMessageId> messages;
  walk(
      std::move(from), reached_,
      [&](Node* node) {
        if (const auto* receive = dynamic_cast<const ReceiveFunction*>(node)) messages.push_back(receive->message);
      },
      [](const autograd::Edge&) {});
  std::sort(messages.begin(), messages.end());
  return messages;
}

void LocalPass::expect(const std::vector<NodeHandle>& sends) {
  keep(sends);
  expected_.clear();
  std::vector<Node*> from = nodesOf(sends);
  expectedSends_ = {from.begin(), from.end()};
  for (const autograd::Edge& root : roots_) {
    from.push_back(root.function.get());
    ++expected_[root.function.get()];
  }
  std::unordered_set<Node*> seen;
  walk(
      std::move(from), seen, [](Node*) {}, [&](const autograd::Edge& edge) { ++expected_[edge.function.get()]; });
  if (!std::exchange(started_, true)) {
    for (std::size_t i = 0; i < roots_.size(); ++i) put(roots_[i], at::Tensor(rootGradients_[i]), nullptr);
    return;
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.arrived < expected_[at->first]) {
      ++at;
      continue;
    }
    makeReady(at->first, std::move(at->second.buffer));
    at = waiting_.erase(at);
  }
}

bool LocalPass::waitsFor(const NodeHandle& send) const {
  bool found = false;
  std::unordered_set<Node*> seen;
  walk(
      {&nodeIn(send)}, seen, [&](Node* node) { found = found || waiting_.contains(node); }, [](const autograd::Edge&) {});
  return found;
}

void LocalPass::put(const autograd::Edge& edge, at::Tensor&& gradient, Node* from) {
  Node* node = edge.function.get();
  auto at = waiting_.find(node);
  if (at == waiting_.end()) at = waiting_.emplace(node, Inputs{autograd::InputBuffer(node->num_inputs())}).first;
  const auto producer = from == nullptr ? std::nullopt : from->stream();
  at->second.buffer.add(edge.input_nr, std::move(gradient), producer, node->stream(), node);
  if (++at->second.arrived < expected_[node]) return;
  makeReady(node, std::move(at->second.buffer));
  waiting_.erase(at);
}

void LocalPass::run(const NodeHandle& send, const std::vector<TensorHandle>& gradients, const GradientSink& sink) {
  const c10::AutoGradMode off(false);
  if (send != nullptr) {
    Node& node = nodeIn(send);
    if (!expectedSends_.contains(&node)) throw Error("A gradient came for a message that is not part of the backward pass.");
    if (gradients.size() != node.num_inputs()) {
      throw Error("A message of " + std::to_string(node.num_inputs()) + " tensors got " + std::to_string(gradients.size()) + " gradients.");
    }
    variable_list inputs;
    for (std::uint32_t i = 0; i < node.num_inputs(); ++i) {  // the other worker may not have had a device of that kind
      inputs.push_back(gradients[i] == nullptr ? at::Tensor() : tensorIn(gradients[i]).to(node.input_metadata(i).device()));
    }
    makeReady(&node, autograd::InputBuffer(std::move(inputs)));
  }
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    Ready next = std::move(ready_.back());
    ready_.pop_back();
    execute(*next.node, std::move(next.inputs), sink);
  }
}

void LocalPass::execute(Node& node, autograd::InputBuffer&& inputs, const GradientSink& sink) {
  const c10::OptionalStreamGuard stream(node.stream());
  if (const auto* receive = dynamic_cast<const ReceiveFunction*>(&node)) {
    std::vector<TensorHandle> gradients;
    for (at::Tensor& gradient : preHooks(node, std::move(inputs.buffer))) {
      gradients.push_back(gradient.defined() ? handleOf(std::move(gradient)) : nullptr);
    }
    sink.received(receive->message, std::move(gradients));
    return;
  }
  if (dynamic_cast<autograd::AccumulateGrad*>(&node) != nullptr) return leave(node, std::move(inputs.buffer), sink);
  variable_list outputs = call(node, std::move(inputs.buffer), keepGraph_);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (node.next_edge(i).is_valid()) put(node.next_edge(i), std::move(outputs[i]), &node);
  }
}

void LocalPass::leave(Node& node, variable_list&& buffer, const GradientSink& sink) const {
  variable_list inputs = preHooks(node, std::move(buffer));
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  if (!inputs.at(0).defined()) return;
  at::Tensor gradient = inputs[0];
  // A function may give one tensor to several: each gradient of the context is to be its own.
  gradient = gradient.is_sparse() || (inputs[0].use_count() <= 2 && gradient.is_contiguous() && gradient.storage().use_count() == 1)
                 ? gradient.detach()
                 : gradient.clone(at::MemoryFormat::Contiguous);
  sink.leaf(handleOf(static_cast<autograd::AccumulateGrad&>(node).variable), handleOf(std::move(gradient)));
  for (const auto& hook : node.post_hooks()) (*hook)({}, inputs);
}

}  // namespace pw
