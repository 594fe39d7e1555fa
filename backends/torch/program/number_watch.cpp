#include "backends/torch/program/number_watch.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <variant>

#include "backends/messages/buffer_math.h"
#include "backends/torch/program/arguments.h"
#include "backends/torch/program/types.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

bool hasNumbers(const at::Tensor& tensor) { return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex()); }

bool isFinite(const at::Tensor& tensor) {
  if (!hasNumbers(tensor)) return true;
  if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg())
    return allFinite(dtypeOf(tensor.scalar_type()), bufferOf(tensor));
  return at::isfinite(tensor.detach()).all().item<bool>();
}

bool hasNan(const at::Tensor& tensor) { return !isFinite(tensor) && at::isnan(tensor.detach()).any().item<bool>(); }

/// An operator that is given infinity as a number, as masks are.
bool namesInfinity(const Node& node) {
  return std::ranges::any_of(node.inputs, [](const NamedArgument& argument) {
    const auto* number = std::get_if<double>(&argument.value);
    return number != nullptr && std::isinf(*number);
  });
}

}  // namespace

/// Looks at what a function of autograd was given and what it made of it.
struct NumberWatch::Hook final : torch::autograd::FunctionPostHook {
  Hook(NumberWatch& watching, const Node& of) : watch(watching), node(of) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& made,
                                            const torch::autograd::variable_list& given) override {
    const auto place = watch.here();
    if (!watch.seen_.contains(place) && !std::ranges::all_of(made, &isFinite) && std::ranges::all_of(given, &isFinite)) {
      watch.note(watch.now_.kind, watch.now_.microbatch,
                 "the backward of " + describe(node) + " made a gradient that is not finite of finite ones");
    }
    return made;
  }
  NumberWatch& watch;
  const Node& node;
};

void NumberWatch::beginStep() {
  seen_.clear();
  infinities_.clear();
  hooked_.clear();
}

void NumberWatch::begin(ActionKind kind, Microbatch microbatch) {
  now_ = {kind, microbatch, ""};
  if (kind == ActionKind::Forward) hooked_.clear();  // functions of other microbatches are no part of its history
}

void NumberWatch::note(ActionKind kind, Microbatch microbatch, const std::string& what) {
  seen_.try_emplace({kind != ActionKind::Forward, microbatch}, NonFiniteValue{kind, microbatch, what});
}

void NumberWatch::see(const std::string& what, const at::Tensor& value, bool hasGradient) {
  if (seen_.contains(here()) || !hasNumbers(value) || (!value.is_cpu() && !everyOperator_) || isFinite(value)) return;
  if (!hasGradient && !hasNan(value)) return;
  const auto made = infinities_.find(here());
  note(now_.kind, now_.microbatch, made != infinities_.end() ? made->second.what : what + " is not finite");
}

void NumberWatch::see(const std::vector<ParameterView>& parameters) {
  if (seen_.contains(here())) return;
  for (const ParameterView& view : parameters) {
    if (allFinite(view.dtype, view.gradient)) continue;
    std::string what = "the gradient of parameter " + view.name + " is not finite";
    const auto state = std::ranges::find(graph_.parameters, view.name, &StateTensor::name);
    for (const Node& node : graph_.nodes) {
      if (state == graph_.parameters.end() || std::ranges::count(readsOf(node), state->value) == 0) continue;
      what += ", used by " + describe(node);
      break;
    }
    return note(now_.kind, now_.microbatch, what);
  }
}

void NumberWatch::see(const Node& node, const Frame& frame) {
  if (now_.kind == ActionKind::Forward) seeForward(node, frame);
  if (!c10::GradMode::is_enabled()) return;
  for (const ValueId output : node.outputs) {
    const at::Tensor& tensor = frame[output.index()];
    if (tensor.defined() && tensor.requires_grad()) hook(node, tensor);
  }
}

void NumberWatch::seeForward(const Node& node, const Frame& frame) {
  if (seen_.contains(here())) return;
  const auto tensorOf = [&](ValueId value) -> const at::Tensor& { return frame[value.index()]; };
  const bool finite = std::ranges::all_of(node.outputs, [&](ValueId value) { return isFinite(tensorOf(value)); });
  if (finite) return;
  const bool nan = std::ranges::any_of(node.outputs, [&](ValueId value) { return hasNan(tensorOf(value)); });
  const auto reads = readsOf(node);
  if (!nan) {
    const bool made = std::ranges::all_of(reads, [&](ValueId value) { return isFinite(tensorOf(value)); });
    if (made && !namesInfinity(node))
      infinities_.try_emplace(here(), NonFiniteValue{now_.kind, now_.microbatch, describe(node) + " made infinity of finite numbers"});
    return;
  }
  const auto from = isInPlace(node) ? reads.end() : std::ranges::find_if(reads, [&](ValueId value) { return hasNan(tensorOf(value)); });
  if (from != reads.end()) {
    const auto state = std::ranges::find(graph_.parameters, *from, &StateTensor::value);
    const std::string name = state != graph_.parameters.end() ? "parameter " + state->name : graph_.value(*from).name;
    return note(now_.kind, now_.microbatch, name + " had NaN in it already, and " + describe(node) + " reads it");
  }
  const auto infinite = infinities_.find(here());
  note(now_.kind, now_.microbatch,
       describe(node) + " made NaN" + (infinite == infinities_.end() ? "" : ", after " + infinite->second.what));
}

/// All functions that this operator added to the history.
void NumberWatch::hook(const Node& node, const at::Tensor& output) {
  std::vector<std::shared_ptr<torch::autograd::Node>> next{output.grad_fn()};
  while (!next.empty()) {
    const std::shared_ptr<torch::autograd::Node> function = next.back();
    next.pop_back();
    if (function == nullptr || !hooked_.insert(function.get()).second) continue;
    function->add_post_hook(std::make_unique<Hook>(*this, node));
    for (const torch::autograd::Edge& edge : function->next_edges()) next.push_back(edge.function);
  }
}

std::optional<NonFiniteValue> NumberWatch::first() const {
  if (!seen_.empty()) return seen_.begin()->second;
  if (!infinities_.empty()) return infinities_.begin()->second;
  return std::nullopt;
}

}  // namespace pw
