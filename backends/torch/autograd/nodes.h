#pragma once

// Internal to the module: the two functions that stand where tensors cross from one worker to another. Includes LibTorch.

#include <torch/csrc/autograd/function.h>

#include <string>

#include "backends/torch/autograd/functions.h"

namespace pw {

/// At the source of a message: one input for each tensor that needs a gradient, passed on to that tensor's function.
struct SendFunction final : torch::autograd::Node {
  explicit SendFunction(torch::autograd::edge_list&& edges) : Node(std::move(edges)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  [[nodiscard]] std::string name() const override { return "pw::SendFunction"; }
};

/// At the destination: what made the tensors that arrived. It has no next function here: a pass sends its gradients away.
struct ReceiveFunction final : torch::autograd::Node {
  ReceiveFunction(AutogradMessageId id, std::string from) : message(id), origin(std::move(from)) {}
  /// Throws Error: only a distributed pass can continue from here.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  [[nodiscard]] std::string name() const override { return "pw::ReceiveFunction"; }

  AutogradMessageId message;
  std::string origin;
};

/// The node of a message that goes out with these tensors, each of which needs a gradient.
[[nodiscard]] NodeHandle attachSend(const std::vector<TensorHandle>& tensors);
/// Makes these tensors, which came with a message of the worker `origin`, outputs of one node, which it returns: they then need gradients.
[[nodiscard]] NodeHandle attachReceive(const std::vector<TensorHandle>& tensors, AutogradMessageId message, const std::string& origin);

[[nodiscard]] inline at::Tensor& tensorIn(const TensorHandle& handle) { return *static_cast<at::Tensor*>(handle.get()); }
[[nodiscard]] inline torch::autograd::Node& nodeIn(const NodeHandle& handle) { return *static_cast<torch::autograd::Node*>(handle.get()); }
[[nodiscard]] inline TensorHandle handleOf(at::Tensor tensor) { return std::make_shared<at::Tensor>(std::move(tensor)); }

}  // namespace pw
