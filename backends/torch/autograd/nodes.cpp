#include "backends/torch/autograd/nodes.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "schedules/error.h"

namespace pw {

namespace autograd = torch::autograd;

autograd::variable_list SendFunction::apply(autograd::variable_list&& gradients) { return std::move(gradients); }

autograd::variable_list ReceiveFunction::apply(autograd::variable_list&& /*gradients*/) {
  throw Error("A local backward reached a tensor that came from " + origin + "; run the backward pass of the distributed context instead.");
}

NodeHandle attachSend(const std::vector<TensorHandle>& tensors) {
  autograd::edge_list edges;
  for (const TensorHandle& tensor : tensors) edges.push_back(autograd::impl::gradient_edge(tensorIn(tensor)));
  const std::shared_ptr<SendFunction> node(new SendFunction(std::move(edges)), autograd::deleteNode);
  for (const TensorHandle& tensor : tensors) node->add_input_metadata(tensorIn(tensor));
  return std::static_pointer_cast<autograd::Node>(node);
}

NodeHandle attachReceive(const std::vector<TensorHandle>& tensors, AutogradMessageId message, const std::string& origin) {
  const std::shared_ptr<autograd::Node> node(new ReceiveFunction(message, origin), autograd::deleteNode);
  for (const TensorHandle& tensor : tensors) autograd::set_history(tensorIn(tensor), node);
  return node;
}

}  // namespace pw
