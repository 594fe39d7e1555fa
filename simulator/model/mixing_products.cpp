#include "simulator/model/mixing_products.h"

#include <algorithm>
#include <string>

#include "simulator/model/node_arguments.h"

namespace pw {
namespace {

using Kind = SampleFlow::Kind;

}  // namespace

std::optional<Equation> equationOf(const Node& node) {
  const Argument* argument = argumentOf(node, "equation");
  const auto* given = argument == nullptr ? nullptr : std::get_if<std::string>(argument);
  std::string text = given == nullptr ? "" : *given;
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  if (arrow == std::string::npos || text.find('.') != std::string::npos) return std::nullopt;
  Equation equation;
  equation.result = text.substr(arrow + 2);
  for (std::size_t begin = 0; begin <= arrow;) {
    const std::size_t end = std::min(text.find(',', begin), arrow);
    equation.terms.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return equation;
}

/// a · b, preceded by a summand in addmm and baddbmm.
FlowResult throughMatrixProduct(const CallFlow& c) {
  const std::size_t skip = c.leftOperand();
  if (c.call().tensors.size() < skip + 2) return c.each();
  const FlowingTensor &a = c.call().tensors[skip], &b = c.call().tensors[skip + 1];
  const std::size_t ra = a.extents.size(), rb = b.extents.size(), out = c.call().results.front().size();
  std::vector<std::optional<SampleLayout>> places;
  if (a.flow.kind == Kind::Along) {
    SampleLayout layout = a.flow.layout;
    if (layout.dimension + 1 == ra) return c.mixed(kReduces);
    const std::size_t fromEnd = ra - layout.dimension - (rb == 1 ? 1 : 0);  // a vector takes the last dimension away
    layout.dimension = out - fromEnd;
    places.emplace_back(layout);
  }
  if (b.flow.kind == Kind::Along) {
    SampleLayout layout = b.flow.layout;
    if (layout.dimension + (rb == 1 ? 1 : 2) == rb) return c.mixed(kReduces);
    const bool last = layout.dimension + 1 == rb;
    const std::size_t fromEnd = last ? 1 : rb - layout.dimension - (ra == 1 ? 1 : 0);
    layout.dimension = out - fromEnd;
    places.emplace_back(layout);
  }
  if (skip > 0 && c.first().flow.kind == Kind::Along) places.push_back(c.placeIn(c.first(), c.call().results.front()));
  return c.agreed(places);
}

/// By the letters of the equation.
FlowResult throughEinsum(const CallFlow& c) {
  const auto equation = equationOf(c.node());
  if (!equation) {
    FlowResult guess = c.each();
    guess.unknown = true;
    return guess;
  }
  std::vector<std::optional<SampleLayout>> places;
  for (std::size_t t = 0; t < std::min(c.call().tensors.size(), equation->terms.size()); ++t) {
    const FlowingTensor& tensor = c.call().tensors[t];
    const std::string& letters = equation->terms[t];
    if (tensor.flow.kind != Kind::Along || tensor.flow.layout.dimension >= letters.size()) continue;
    SampleLayout layout = tensor.flow.layout;
    layout.dimension = equation->result.find(letters[layout.dimension]);
    if (layout.dimension == std::string::npos) return c.mixed(kReduces);
    places.emplace_back(layout);
  }
  return c.agreed(places);
}

FlowResult throughAttention(const CallFlow& c) {
  const std::size_t out = c.call().results.front().size();
  std::vector<std::optional<SampleLayout>> places;
  for (const FlowingTensor& tensor : c.call().tensors) {
    if (tensor.flow.kind != Kind::Along) continue;
    const SampleLayout layout = broadcast(tensor.flow.layout, tensor.extents.size(), out);
    const bool isKey = tensor.argument == "key" || tensor.argument == "value";
    if (isKey ? layout.dimension + 2 == out : layout.dimension + 1 == out) return c.mixed(kReduces);
    if (tensor.argument == "key" && layout.dimension + 1 == out) return c.mixed(kReduces);
    places.emplace_back(layout);
  }
  return c.agreed(places);
}

}  // namespace pw
