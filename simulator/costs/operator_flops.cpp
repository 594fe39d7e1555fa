#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile.h"
#include "simulator/model/symbolic.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

/// One call: its arguments' sizes as numbers.
class Call {
 public:
  Call(const ModelGraph& graph, const Node& node, const Bindings& bindings) : graph_(graph), node_(node), bindings_(bindings) {}

  using Sizes = std::vector<double>;

  [[nodiscard]] const Argument* argument(std::string_view name) const {
    for (const NamedArgument& a : node_.inputs) {
      if (a.name == name) return &a.value;
    }
    return nullptr;
  }
  [[nodiscard]] Sizes sizesOf(ValueId v) {
    Sizes sizes;
    if (!graph_.value(v).tensor) return sizes;
    for (const SymbolicInt& size : graph_.value(v).tensor->sizes) sizes.push_back(static_cast<double>(known(size)));
    return sizes;
  }
  /// Sizes of a tensor argument; nothing if there is no such argument.
  [[nodiscard]] std::optional<Sizes> sizes(std::string_view name) {
    const Argument* found = argument(name);
    const auto* id = found == nullptr ? nullptr : std::get_if<ValueId>(found);
    return id != nullptr && graph_.value(*id).tensor ? std::optional(sizesOf(*id)) : std::nullopt;
  }
  [[nodiscard]] std::vector<Sizes> list(std::string_view name) {
    std::vector<Sizes> all;
    const Argument* found = argument(name);
    const auto* ids = found == nullptr ? nullptr : std::get_if<std::vector<ValueId>>(found);
    for (std::size_t i = 0; ids != nullptr && i < ids->size(); ++i) all.push_back(sizesOf((*ids)[i]));
    return all;
  }
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(std::string_view name) {
    const Argument* found = argument(name);
    if (found == nullptr) return std::nullopt;
    if (const auto* one = std::get_if<std::int64_t>(found)) return std::vector<std::int64_t>{*one};
    if (const auto* some = std::get_if<std::vector<std::int64_t>>(found)) return *some;
    const auto* mixed = std::get_if<std::vector<IntOrValue>>(found);
    if (mixed == nullptr) return std::nullopt;
    std::vector<std::int64_t> numbers;
    for (const IntOrValue& element : *mixed) {
      const auto* id = std::get_if<ValueId>(&element);
      numbers.push_back(id == nullptr                ? std::get<std::int64_t>(element)
                        : graph_.value(*id).symbolic ? known(*graph_.value(*id).symbolic)
                                                     : 0);
    }
    return numbers;
  }
  [[nodiscard]] bool flag(std::string_view name) const {
    const Argument* found = argument(name);
    const auto* value = found == nullptr ? nullptr : std::get_if<bool>(found);
    return value != nullptr && *value;
  }
  [[nodiscard]] std::string text(std::string_view name) const {
    const Argument* found = argument(name);
    const auto* value = found == nullptr ? nullptr : std::get_if<std::string>(found);
    return value == nullptr ? std::string() : *value;
  }
  [[nodiscard]] Sizes out() { return node_.outputs.empty() ? Sizes() : sizesOf(node_.outputs.front()); }
  /// Whether a size that was asked of it depends on data: then what follows from it is not known.
  [[nodiscard]] bool dependsOnData() const { return dependsOnData_; }

 private:
  [[nodiscard]] std::int64_t known(const SymbolicInt& number) {
    const auto value = knownNumber(number, bindings_);
    dependsOnData_ = dependsOnData_ || !value;
    return value.value_or(0);
  }

  const ModelGraph& graph_;
  const Node& node_;
  const Bindings& bindings_;
  bool dependsOnData_ = false;
};

using Sizes = Call::Sizes;

double product(const Sizes& sizes) {
  double count = 1;
  for (const double size : sizes) count *= size;
  return count;
}

double fromEnd(const Sizes& sizes, std::size_t i) { return sizes.size() < i ? 1 : sizes[sizes.size() - i]; }

/// 2 per element of the result and of the dimension that is summed over, the last of `left`.
double productFlops(Call& call, std::string_view left) {
  const auto sizes = call.sizes(left);
  return sizes ? 2 * product(call.out()) * fromEnd(*sizes, 1) : 0;
}

/// addbmm sums the products of a batch: each is counted.
double summedProductFlops(Call& call) {
  const auto left = call.sizes("batch1"), right = call.sizes("batch2");
  return left && right ? 2 * product(*left) * fromEnd(*right, 1) : 0;
}

/// Each element of the output, transposed of the input, takes part in one multiply-add per weight of its channel.
double convolutionFlops(Call& call, std::string_view name) {
  const auto weight = call.sizes("weight"), input = call.sizes("input");
  if (!weight || !input || weight->empty() || weight->front() == 0) return 0;
  const bool transposed = name.find("transpose") != std::string::npos || call.flag("transposed");
  return 2 * (transposed ? product(*input) : product(call.out())) * product(*weight) / weight->front();
}

/// Scores, then weighted values.
double attentionFlops(Call& call) {
  const auto query = call.sizes("query"), key = call.sizes("key");
  return query && key ? 2 * (product(*query) + product(call.out())) * fromEnd(*key, 2) : 0;
}

/// torch.nn.functional.grouped_mm: rows [T, k] by experts [E, k, n], or [m, K] · [K, n] with the columns in groups, whose products add up
/// to one: each element of a row meets the last dimension of its one expert once.
double groupedFlops(Call& call) {
  const auto first = [&](std::string_view a, std::string_view b) { return call.sizes(a) ? call.sizes(a) : call.sizes(b); };
  const auto left = first("self", "input"), right = first("mat2", "weight");
  if (!left || !right) return 0;
  const double columns =
      left->size() == 3 && right->size() == 2 ? fromEnd(call.out(), 1) / std::max(1.0, left->front()) : fromEnd(*right, 1);
  return 2 * product(*left) * columns;
}

/// The indices of a term, the dimensions that `...` stands for as capital letters from the last on.
std::string indicesOf(const std::string& term, std::size_t dimensions) {
  const std::size_t dots = term.find("...");
  if (dots == std::string::npos) return term;
  std::string ellipsis;
  for (std::size_t i = dimensions - std::min(dimensions, term.size() - 3); i-- > 0;) ellipsis += static_cast<char>(1 + i);
  return term.substr(0, dots) + ellipsis + term.substr(dots + 3);
}

/// Contracted from left to right, as torch.einsum does it: each pair costs a multiply-add for every combination of the indices of both.
double einsumFlops(Call& call) {
  std::string equation = call.text("equation");
  std::erase(equation, ' ');
  const std::string left = equation.substr(0, equation.find("->"));
  const std::vector<Sizes> tensors = call.list("tensors");
  std::vector<std::string> terms;
  std::map<char, double> sizes;
  std::size_t begin = 0;
  for (const Sizes& tensor : tensors) {
    const std::size_t end = std::min(left.find(',', begin), left.size());
    terms.push_back(indicesOf(left.substr(std::min(begin, left.size()), end - begin), tensor.size()));
    begin = end + 1;
    if (terms.back().size() != tensor.size()) return 0;
    for (std::size_t i = 0; i < tensor.size(); ++i) sizes[terms.back()[i]] = std::max(sizes[terms.back()[i]], tensor[i]);
  }
  if (terms.size() < 2) return 0;
  const std::size_t arrow = equation.find("->");
  std::string result = arrow == std::string::npos ? std::string() : equation.substr(arrow + 2);
  if (arrow == std::string::npos || result.find("...") != std::string::npos) {  // without it: the indices that occur once
    std::string all;
    for (const std::string& term : terms) all += term;
    for (const char c : all) {
      const bool dotted = static_cast<unsigned char>(c) < 32;
      if (dotted || (arrow == std::string::npos && std::count(all.begin(), all.end(), c) == 1)) result += c;
    }
  }
  double flops = 0;
  std::string done = terms.front();
  for (std::size_t i = 1; i < terms.size(); ++i) {
    std::string both = done + terms[i];
    std::sort(both.begin(), both.end());
    both.erase(std::unique(both.begin(), both.end()), both.end());
    double combinations = 1;
    for (const char c : both) combinations *= sizes[c];
    flops += 2 * combinations;
    std::string later = result;
    for (std::size_t k = i + 1; k < terms.size(); ++k) later += terms[k];
    std::erase_if(both, [&](char c) { return later.find(c) == std::string::npos; });
    done = both;
  }
  return flops;
}

double tensordotFlops(Call& call) {
  const auto left = call.sizes("self");
  const auto summed = call.integers("dims_self");
  if (!left || !summed) return 0;
  double inner = 1;
  for (const std::int64_t d : *summed)
    inner *=
        (*left)[static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(left->size()) : d) % std::max<std::size_t>(1, left->size())];
  return 2 * product(call.out()) * inner;
}

double chainFlops(Call& call) {
  const std::vector<Sizes> matrices = call.list("matrices");
  double flops = 0;
  for (std::size_t i = 1; i < matrices.size(); ++i) flops += 2 * matrices[0][0] * product(matrices[i]);
  return flops;
}

double bilinearFlops(Call& call) {
  const auto first = call.sizes("input1"), weight = call.sizes("weight");  // [out, in1, in2]: x1ᵀ W x2 for each row
  return first && weight && !first->empty() && first->back() > 0
             ? 2 * product(*first) / first->back() * (product(*weight) + product(*weight) / fromEnd(*weight, 2))
             : 0;
}

/// One addition for each element of each row that a bag holds, two operations with a weight of its own.
double bagFlops(Call& call) {
  const auto weight = call.sizes("weight"), indices = call.sizes("indices");
  return weight && indices ? product(*indices) * fromEnd(*weight, 1) * (call.sizes("per_sample_weights") ? 2 : 1) : 0;
}

/// Every matrix of every layer and direction meets each sample at each time step (torch.nn.LSTM's equations); gates and states are
/// element-wise.
double recurrentFlops(Call& call) {
  const auto input = call.sizes("input") ? call.sizes("input") : call.sizes("data");
  if (!input || input->empty() || input->back() == 0) return 0;
  double weights = 0;
  for (const Sizes& parameter : call.list("params")) weights += parameter.size() == 2 ? product(parameter) : 0;
  for (const char* name : {"w_ih", "w_hh"}) {  // of a cell
    if (const auto matrix = call.sizes(name)) weights += product(*matrix);
  }
  return 2 * product(*input) / input->back() * weights;
}

/// 5 N log2 N for a transform of N complex points, half of that where one side is real (the convention of FFTW's benchmarks, Cooley and
/// Tukey 1965).
double transformFlops(Call& call, std::string_view name) {
  const auto input = call.sizes("self");
  const Sizes output = call.out();
  if (!input || input->size() != output.size() || input->empty()) return 0;
  const bool fromReal = name.find("rfft") != std::string::npos || name.find("ihfft") != std::string::npos || name == "_fft_r2c";
  const bool toReal = name.find("irfft") != std::string::npos ||
                      (name.find("hfft") != std::string::npos && name.find("ihfft") == std::string::npos) || name == "_fft_c2r";
  const Sizes& points = toReal ? output : fromReal ? *input : output;
  const auto rank = static_cast<std::int64_t>(points.size());
  auto dimensions = call.integers("dim");
  if (!dimensions) {
    std::int64_t first = rank - 1;
    if (name.ends_with('2')) first = std::max<std::int64_t>(0, rank - 2);
    if (name.ends_with('n')) first = call.integers("s") ? rank - static_cast<std::int64_t>(call.integers("s")->size()) : 0;
    dimensions.emplace();
    for (std::int64_t d = first; d < rank; ++d) dimensions->push_back(d);
  }
  double n = 1;
  for (const std::int64_t d : *dimensions) n *= points[static_cast<std::size_t>((d + rank) % rank)];
  return n <= 1 ? 0 : (fromReal || toReal ? 2.5 : 5.0) * product(points) * std::log2(n);
}

double ownFlops(Call& call, const Operator& op) {
  switch (op.work) {
    case Work::Unknown:
    case Work::Nothing:
    case Work::Memory: return 0;
    case Work::Product: return productFlops(call, op.left);
    case Work::SummedProduct: return summedProductFlops(call);
    case Work::GroupedProduct: return groupedFlops(call);
    case Work::Chain: return chainFlops(call);
    case Work::TensorDot: return tensordotFlops(call);
    case Work::Bilinear: return bilinearFlops(call);
    case Work::Einsum: return einsumFlops(call);
    case Work::Convolution: return convolutionFlops(call, op.name);
    case Work::Attention: return attentionFlops(call);
    case Work::Recurrent: return recurrentFlops(call);
    case Work::Bag: return bagFlops(call);
    case Work::Transform: return transformFlops(call, op.name);
  }
  return 0;
}

/// How many times the forward's FLOPs the backward takes.
double backwardTimes(const Node& node, const std::vector<bool>& gradient) {
  const Work work = operatorOf(node.target).work;
  const auto factors = static_cast<double>(trainedFactors(node, gradient).size());
  const bool hasSubgraph =
      std::ranges::any_of(node.inputs, [](const NamedArgument& a) { return std::holds_alternative<GraphArg>(a.value); });
  if (work == Work::Attention || hasSubgraph) return 2;
  const bool isSequence = work == Work::Recurrent || work == Work::Einsum || work == Work::Chain;  // of products of two
  return isSequence ? std::min(2.0, factors) : factors;
}

}  // namespace

std::vector<ValueId> trainedFactors(const Node& node, const std::vector<bool>& gradient) {
  const auto named = [&](std::string_view name) { return std::ranges::count(node.inputs, name, &NamedArgument::name) > 0; };
  const bool adds = named("mat1") || named("batch1") || named("mat");  // addmm and its like add to `self`
  std::vector<ValueId> factors;
  const auto add = [&](ValueId id) {
    if (gradient[id.index()]) factors.push_back(id);
  };
  for (const NamedArgument& argument : node.inputs) {
    if (argument.name == "bias" || (adds && argument.name == "self")) continue;
    if (const auto* one = std::get_if<ValueId>(&argument.value)) add(*one);
    if (const auto* some = std::get_if<std::vector<ValueId>>(&argument.value)) std::ranges::for_each(*some, add);
  }
  return factors;
}

double backwardFlops(const ModelGraph& graph, const std::vector<bool>& gradient, const std::vector<double>& forward) {
  double flops = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (forward[n] > 0 && std::ranges::any_of(node.outputs, [&](ValueId v) { return gradient[v.index()]; }))
      flops += forward[n] * backwardTimes(node, gradient);
  }
  return flops;
}

std::optional<double> forwardFlops(const ModelGraph& graph, const Node& node, const Bindings& bindings) {
  const bool isCond = node.target == "torch.ops.higher_order.cond";
  double inside = 0;
  for (const NamedArgument& argument : node.inputs) {
    const auto* inner = std::get_if<GraphArg>(&argument.value);
    if (inner == nullptr) continue;
    double flops = 0;
    for (const Node& n : graph.subgraphs[inner->index].nodes) {
      const std::optional<double> known = forwardFlops(graph, n, bindings);
      if (!known) return std::nullopt;
      flops += *known;
    }
    inside = isCond ? std::max(inside, flops) : inside + flops;
  }
  if (node.outputs.empty() || !graph.value(node.outputs.front()).tensor || node.target.rfind("torch.ops.higher_order.", 0) == 0)
    return inside;
  Call call(graph, node, bindings);
  const double own = ownFlops(call, operatorOf(node.target));
  return call.dependsOnData() ? std::nullopt : std::optional(inside + own);
}

}  // namespace pw
