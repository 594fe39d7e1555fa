#include "simulator/model/flowing_call.h"

#include <algorithm>

#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

using Kind = SampleFlow::Kind;

}  // namespace

std::optional<Extents> extentsOf(const Value& value, const Bindings& bindings) {
  if (!value.tensor) return std::nullopt;
  Extents extents;
  for (const SymbolicInt& size : value.tensor->sizes) {
    const auto known = knownNumber(size, bindings);
    if (!known) return std::nullopt;
    extents.push_back(*known);
  }
  return extents;
}

std::optional<FlowingCall> callOf(const ModelGraph& graph, const Node& node, const Bindings& bindings,
                                  const std::vector<SampleFlow>& flows) {
  FlowingCall call;
  call.node = &node;
  bool known = true;
  const auto tensor = [&](const std::string& argument, std::size_t index, ValueId id) {
    const Value& value = graph.value(id);
    if (value.symbolic) {
      if (const auto number = knownNumber(*value.symbolic, bindings)) call.numbers.emplace_back(argument, *number);
      return;
    }
    const auto extents = extentsOf(value, bindings);
    if (!extents)
      known = known && !value.tensor;
    else
      call.tensors.push_back({argument, index, *extents, flows.empty() ? SampleFlow() : flows[id.index()]});
  };
  for (const NamedArgument& argument : node.inputs) {
    if (const auto* one = std::get_if<ValueId>(&argument.value)) tensor(argument.name, 0, *one);
    if (const auto* number = std::get_if<std::int64_t>(&argument.value)) call.numbers.emplace_back(argument.name, *number);
    if (const auto* many = std::get_if<std::vector<ValueId>>(&argument.value)) {
      for (std::size_t i = 0; i < many->size(); ++i) tensor(argument.name, i, (*many)[i]);
    }
    if (const auto* some = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
      for (std::size_t i = 0; i < some->size(); ++i) {
        if ((*some)[i]) tensor(argument.name, i, *(*some)[i]);
      }
    }
  }
  for (const ValueId id : node.outputs) {
    const auto extents = extentsOf(graph.value(id), bindings);
    known = known && (extents || !graph.value(id).tensor);
    call.results.push_back(extents.value_or(Extents{}));
  }
  return known ? std::optional(call) : std::nullopt;
}

const FlowingTensor* CallFlow::named(std::string_view name) const {
  const auto found = std::ranges::find_if(call_.tensors, [&](const FlowingTensor& t) { return t.argument == name; });
  return found == call_.tensors.end() ? nullptr : &*found;
}
std::size_t CallFlow::spatial() const {
  const std::size_t at = name().find("d", name().find_first_of("123"));
  return at == std::string_view::npos ? 0 : static_cast<std::size_t>(name()[at - 1] - '0');
}

FlowResult CallFlow::mixed(const char* how) const {
  FlowResult result = all({Kind::Mixed, {}});
  result.mixes = how;
  for (std::size_t r = 0; r < result.flows.size(); ++r) {  // what still has the samples in one dimension is followed further
    if (const auto layout = bySize(call_.results[r])) result.flows[r] = {Kind::Along, *layout};
  }
  return result;
}
FlowResult CallFlow::mixedIf(bool mixes, const char* how, FlowResult otherwise) const {
  return mixes && firstIsAlong() ? mixed(how) : std::move(otherwise);
}

std::optional<SampleLayout> CallFlow::bySize(const Extents& extents) const {
  const auto is = [&](std::int64_t size) { return size > 0 && size % call_.batch == 0; };
  if (!call_.symbolicBatch || std::ranges::count_if(extents, is) != 1) return std::nullopt;
  const auto found = std::ranges::find_if(extents, is);
  return SampleLayout{static_cast<std::size_t>(found - extents.begin()), 1, *found / call_.batch};
}

FlowResult CallFlow::each(std::size_t most) const {
  FlowResult result;
  for (const Extents& extents : call_.results) {
    SampleFlow flow;
    for (std::size_t t = 0; t < std::min(most, call_.tensors.size()); ++t) {
      const FlowingTensor& tensor = call_.tensors[t];
      if (tensor.flow.kind == Kind::Mixed && flow.kind != Kind::Along) flow = {Kind::Mixed, {}};
      if (tensor.flow.kind != Kind::Along) continue;
      const auto layout = placeIn(tensor, extents);
      if (!layout) return mixed(kReduces);
      if (flow.kind == Kind::Along && flow.layout != *layout) return mixed(kPairs);
      flow = {Kind::Along, *layout};
    }
    result.flows.push_back(flow);
  }
  if (keepsNumbers()) return followsFirst(first().flow.layout);
  if (most == 1 && first().flow.kind == Kind::Numbers)
    return followsFirst(broadcast(first().flow.layout, rank(), call_.results.front().size()));
  return result;
}

bool CallFlow::keepsNumbers() const {
  if (call_.tensors.size() != 1 || first().flow.kind != Kind::Numbers || call_.results.size() != 1 ||
      call_.results.front() != first().extents)
    return false;
  return isView(node()) || isCopy(node()) || (name() == "add" && numberOf("other", 1) == 0);
}

std::optional<SampleLayout> CallFlow::placeIn(const FlowingTensor& tensor, const Extents& result) const {
  const std::size_t from = tensor.extents.size();
  if (from <= result.size()) {
    const SampleLayout layout = broadcast(tensor.flow.layout, from, result.size());
    if (result[layout.dimension] == tensor.extents[tensor.flow.layout.dimension]) return layout;
  }
  return bySize(result);
}

FlowResult CallFlow::sameDimension() const {
  if (!firstIsAlong()) return each();
  const SampleLayout layout = first().flow.layout;
  for (const Extents& extents : call_.results) {
    if (layout.dimension >= extents.size() || extents[layout.dimension] != first().extents[layout.dimension]) return mixed(kReduces);
  }
  for (const FlowingTensor& tensor : call_.tensors) {
    if (tensor.flow.kind == Kind::Along && tensor.flow.layout != layout) return mixed(kPairs);
  }
  return followsFirst(layout);
}

FlowResult CallFlow::agreed(const std::vector<std::optional<SampleLayout>>& layouts) const {
  std::optional<SampleLayout> common;
  for (const auto& layout : layouts) {
    if (layout && common && *layout != *common) return mixed(kPairs);
    if (layout) common = layout;
  }
  if (common) return along(*common);
  const bool anyMixed = std::ranges::any_of(call_.tensors, [](const FlowingTensor& t) { return t.flow.kind == Kind::Mixed; });
  return all({anyMixed ? Kind::Mixed : Kind::Same, {}});
}

std::int64_t CallFlow::numberOf(std::string_view name, std::int64_t fallback) const {
  const auto found = std::ranges::find_if(call_.numbers, [&](const auto& n) { return n.first == name; });
  return found == call_.numbers.end() ? fallback : found->second;
}

std::size_t CallFlow::leftOperand() const {
  const auto found = std::ranges::find_if(call_.tensors, [&](const FlowingTensor& t) { return t.argument == op_.left; });
  return found == call_.tensors.end() ? 0 : static_cast<std::size_t>(found - call_.tensors.begin());
}

}  // namespace pw
