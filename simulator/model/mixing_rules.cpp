#include "simulator/model/mixing_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "simulator/model/dimension_rule.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

using Kind = SampleFlow::Kind;

constexpr const char* kReduces = "reduces over the samples";
constexpr const char* kRuns = "runs along the samples";
constexpr const char* kPairs = "combines each sample with others";
constexpr const char* kPicks = "picks samples by their place";
constexpr const char* kRegroups = "regroups the samples";

const Argument* argumentOf(const Node& node, std::initializer_list<std::string_view> names) {
  const auto found =
      std::ranges::find_if(node.inputs, [&](const NamedArgument& a) { return std::ranges::find(names, a.name) != names.end(); });
  return found == node.inputs.end() ? nullptr : &found->value;
}

/// The dimensions an operator names, from the front; nothing where it names none.
std::vector<std::size_t> dimensionsOf(const Node& node, std::size_t rank, std::initializer_list<std::string_view> names = {"dim", "dims"}) {
  std::vector<std::int64_t> raw;
  if (const Argument* argument = argumentOf(node, names); argument != nullptr) {
    if (const auto* one = std::get_if<std::int64_t>(argument)) raw = {*one};
    if (const auto* many = std::get_if<std::vector<std::int64_t>>(argument)) raw = *many;
  }
  std::vector<std::size_t> dimensions;
  for (const std::int64_t d : raw) dimensions.push_back(static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(rank) : d));
  return dimensions;
}

bool flagOf(const Node& node, std::string_view name, bool fallback) {
  const Argument* argument = argumentOf(node, {name});
  const bool* flag = argument == nullptr ? nullptr : std::get_if<bool>(argument);
  return flag == nullptr ? fallback : *flag;
}

/// One call under its rule.
class Call {
 public:
  explicit Call(const FlowingCall& call) : call_(call) {}

  FlowResult run() {
    switch (dimensionRuleOf(*call_.node)) {
      case DimensionRule::Each: return each();
      case DimensionRule::Sizes: return all({});
      case DimensionRule::Reshape: return reshape();
      case DimensionRule::Permute: return permute();
      case DimensionRule::Expand: return each(1);
      case DimensionRule::Repeat: return repeat();
      case DimensionRule::Reduce: return reduce();
      case DimensionRule::Scan: return scan();
      case DimensionRule::Join: return join();
      case DimensionRule::Piece: return piece();
      case DimensionRule::MatMul: return matrixProduct();
      case DimensionRule::Linear: return mixedIf(first().flow.layout.dimension + 1 == rank(), kReduces, sameDimension());
      case DimensionRule::Attention: return attention();
      case DimensionRule::Spatial:
        return mixedIf(first().flow.layout.dimension != 0 || (spatial() > 0 && rank() != spatial() + 2), kReduces, sameDimension());
      case DimensionRule::Pool: return mixedIf(first().flow.layout.dimension + spatial() >= rank(), kReduces, sameDimension());
      case DimensionRule::Trailing: return trailing();
      case DimensionRule::Group: return mixedIf(first().flow.layout.dimension != 0, kReduces, sameDimension());
      case DimensionRule::Recurrent: return recurrent();
      case DimensionRule::Lookup: return lookup();
      case DimensionRule::Index: return index();
      case DimensionRule::Gather: return gather();
      case DimensionRule::Loss: return loss();
      case DimensionRule::Matrix: return mixedIf(first().flow.layout.dimension + 2 >= rank(), kRuns, sameDimension());
      case DimensionRule::BatchNorm: return sameDimension();
      case DimensionRule::Einsum: return einsum();
      case DimensionRule::Unknown: break;
    }
    FlowResult guess = each();
    guess.unknown = !guess.mixes && std::ranges::any_of(call_.tensors, [](const FlowingTensor& t) {
      return t.flow.kind == Kind::Along || t.flow.kind == Kind::Numbers;
    });
    return guess;
  }

 private:
  [[nodiscard]] const FlowingTensor& first() const { return call_.tensors.front(); }
  [[nodiscard]] std::size_t rank() const { return first().extents.size(); }
  [[nodiscard]] bool firstIsAlong() const { return first().flow.kind == Kind::Along; }
  [[nodiscard]] const FlowingTensor* named(std::string_view name) const {
    const auto found = std::ranges::find_if(call_.tensors, [&](const FlowingTensor& t) { return t.argument == name; });
    return found == call_.tensors.end() ? nullptr : &*found;
  }
  /// Spatial dimensions by the operator's name: conv2d → 2; 0 where it does not say.
  [[nodiscard]] std::size_t spatial() const {
    const std::string name = operatorName(*call_.node);
    const std::size_t at = name.find("d", name.find_first_of("123"));
    return at == std::string::npos ? 0 : static_cast<std::size_t>(name[at - 1] - '0');
  }

  [[nodiscard]] FlowResult all(const SampleFlow& flow) const { return {std::vector<SampleFlow>(call_.results.size(), flow), std::nullopt}; }
  /// Every result depends on all samples.
  [[nodiscard]] FlowResult mixed(const char* how) const {
    FlowResult result = all({Kind::Mixed, {}});
    result.mixes = how;
    for (std::size_t r = 0; r < result.flows.size(); ++r) {  // what still has the samples in one dimension is followed further
      if (const auto layout = bySize(call_.results[r])) result.flows[r] = {Kind::Along, *layout};
    }
    return result;
  }
  [[nodiscard]] FlowResult mixedIf(bool mixes, const char* how, FlowResult otherwise) const {
    return mixes && firstIsAlong() ? mixed(how) : std::move(otherwise);
  }
  [[nodiscard]] FlowResult along(const SampleLayout& layout) const { return all({first().flow.kind, layout}); }

  /// Where a symbolic batch shows in a size; nothing where it shows nowhere or twice.
  [[nodiscard]] std::optional<SampleLayout> bySize(const Extents& extents) const {
    const auto is = [&](std::int64_t size) { return size > 0 && size % call_.batch == 0; };
    if (!call_.symbolicBatch || std::ranges::count_if(extents, is) != 1) return std::nullopt;
    const auto found = std::ranges::find_if(extents, is);
    return SampleLayout{static_cast<std::size_t>(found - extents.begin()), 1, *found / call_.batch};
  }

  /// Every result has the samples where the tensors have them after broadcasting. `most`: how many of the tensors count.
  [[nodiscard]] FlowResult each(std::size_t most = ~std::size_t{0}) const {
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
    if (keepsNumbers()) return along(first().flow.layout);
    if (most == 1 && first().flow.kind == Kind::Numbers) return along(broadcast(first().flow.layout, rank(), call_.results.front().size()));
    return result;
  }

  /// A cast or copy of the sample indices, or 0 added to them.
  [[nodiscard]] bool keepsNumbers() const {
    if (call_.tensors.size() != 1 || first().flow.kind != Kind::Numbers || call_.results.size() != 1 ||
        call_.results.front() != first().extents)
      return false;
    const std::string name = operatorName(*call_.node);
    return isView(*call_.node) || name == "clone" || name == "_to_copy" || (name == "add" && numberOf("other", 1) == 0);
  }

  [[nodiscard]] std::optional<SampleLayout> placeIn(const FlowingTensor& tensor, const Extents& result) const {
    const std::size_t from = tensor.extents.size();
    if (from <= result.size()) {
      const SampleLayout layout = broadcast(tensor.flow.layout, from, result.size());
      if (result[layout.dimension] == tensor.extents[tensor.flow.layout.dimension]) return layout;
    }
    return bySize(result);
  }

  /// The samples stay in their dimension, counted from the front; other tensors must be the same for all samples, or have them there too.
  [[nodiscard]] FlowResult sameDimension() const {
    if (!firstIsAlong()) return each();
    const SampleLayout layout = first().flow.layout;
    for (const Extents& extents : call_.results) {
      if (layout.dimension >= extents.size() || extents[layout.dimension] != first().extents[layout.dimension]) return mixed(kReduces);
    }
    for (const FlowingTensor& tensor : call_.tensors) {
      if (tensor.flow.kind == Kind::Along && tensor.flow.layout != layout) return mixed(kPairs);
    }
    return along(layout);
  }

  [[nodiscard]] FlowResult reshape() const {
    if (first().flow.kind == Kind::Same || first().flow.kind == Kind::Mixed) return all(first().flow);
    const auto layout = reshaped(first().flow.layout, first().extents, call_.results.front(), call_.batch);
    if (layout) return along(*layout);
    return firstIsAlong() ? mixed(kRegroups) : all({});
  }

  [[nodiscard]] FlowResult permute() const {
    if (first().flow.kind == Kind::Same || first().flow.kind == Kind::Mixed) return all(first().flow);
    std::vector<std::size_t> order(rank());  // of the result's dimensions, which one of the tensor's each is
    for (std::size_t d = 0; d < rank(); ++d) order[d] = d;
    const Node& node = *call_.node;
    const std::string name = operatorName(node);
    if (name == "permute") {
      order = dimensionsOf(node, rank());
    } else if (name == "movedim" || name == "moveaxis") {
      const auto source = dimensionsOf(node, rank(), {"source"}), target = dimensionsOf(node, rank(), {"destination"});
      std::erase_if(order, [&](std::size_t d) { return std::ranges::find(source, d) != source.end(); });
      for (std::size_t at = 0; at < rank(); ++at) {
        const auto found = std::ranges::find(target, at);
        if (found != target.end())
          order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), source[static_cast<std::size_t>(found - target.begin())]);
      }
    } else if (name == "numpy_T") {
      std::ranges::reverse(order);
    } else if (rank() >= 2) {
      const auto a = dimensionsOf(node, rank(), {"dim0", "axis0"}), b = dimensionsOf(node, rank(), {"dim1", "axis1"});
      std::swap(order[a.empty() ? rank() - 2 : a.front()], order[b.empty() ? rank() - 1 : b.front()]);
    }
    SampleLayout layout = first().flow.layout;
    const auto found = std::ranges::find(order, layout.dimension);
    if (found == order.end()) return each();
    layout.dimension = static_cast<std::size_t>(found - order.begin());
    return along(layout);
  }

  /// `repeat` appends copies of all rows, `repeat_interleave` repeats each row in place.
  [[nodiscard]] FlowResult repeat() const {
    if (!firstIsAlong() || call_.results.front().size() < rank()) return firstIsAlong() ? mixed(kRegroups) : each();
    SampleLayout layout = broadcast(first().flow.layout, rank(), call_.results.front().size());
    const std::int64_t before = first().extents[first().flow.layout.dimension], after = call_.results.front()[layout.dimension];
    if (before == 0 || after % before != 0) return mixed(kRegroups);
    (operatorName(*call_.node) == "repeat_interleave" ? layout.inner : layout.outer) *= after / before;
    return along(layout);
  }

  [[nodiscard]] FlowResult reduce() const {
    if (argumentOf(*call_.node, {"other"}) != nullptr || !firstIsAlong()) return each();  // max of two tensors
    std::vector<std::size_t> dimensions = dimensionsOf(*call_.node, rank());
    const std::string name = operatorName(*call_.node);
    if (dimensions.empty() && (name == "mode" || name == "kthvalue")) dimensions = {rank() - 1};
    if (dimensions.empty() && name == "cosine_similarity") dimensions = {1};
    SampleLayout layout = first().flow.layout;
    if (dimensions.empty() || std::ranges::find(dimensions, layout.dimension) != dimensions.end()) return mixed(kReduces);
    if (call_.results.front().size() < rank()) {
      layout.dimension -= static_cast<std::size_t>(std::ranges::count_if(dimensions, [&](std::size_t d) { return d < layout.dimension; }));
    }
    return along(layout);
  }

  [[nodiscard]] FlowResult scan() const {
    if (!firstIsAlong()) return each();
    std::vector<std::size_t> dimensions = dimensionsOf(*call_.node, rank());
    const std::string name = operatorName(*call_.node);
    if (dimensions.empty()) dimensions = {rank() - 1};
    if (name.ends_with("2") && name.starts_with("fft") && argumentOf(*call_.node, {"dim"}) == nullptr && rank() > 1)
      dimensions.push_back(rank() - 2);
    const bool ofAll =
        name == "roll" || (name.starts_with("fft_") && (name.ends_with("n") || name.ends_with("shift")));  // where none is named
    const bool flat = ofAll && dimensionsOf(*call_.node, rank()).empty();
    const bool hit = std::ranges::find(dimensions, first().flow.layout.dimension) != dimensions.end();
    // renorm's dimension is the one that it leaves apart.
    return mixedIf(flat || (name == "renorm" ? !hit : hit), name == "flip" || name == "roll" ? kPicks : kRuns, sameDimension());
  }

  [[nodiscard]] FlowResult join() const {
    const auto leads = std::ranges::find_if(call_.tensors, [](const FlowingTensor& t) { return t.flow.kind == Kind::Along; });
    if (leads == call_.tensors.end()) return each();
    const bool stacks = operatorName(*call_.node) == "stack";
    const std::size_t newRank = call_.results.front().size();
    const auto dimensions = dimensionsOf(*call_.node, newRank);
    const std::size_t at = dimensions.empty() ? 0 : dimensions.front();
    SampleLayout layout = leads->flow.layout;
    if (!stacks && layout.dimension == at) {
      std::int64_t outer = 0;
      for (const FlowingTensor& tensor : call_.tensors) {
        const std::int64_t size = at < tensor.extents.size() ? tensor.extents[at] : 0;
        const bool fits = tensor.flow.kind == Kind::Along ? tensor.flow.layout.dimension == at && tensor.flow.layout.inner == layout.inner
                                                          : size % (call_.batch * layout.inner) == 0;
        if (!fits) return mixed(kRegroups);
        outer += size / (call_.batch * layout.inner);
      }
      layout.outer = outer;
      return along2(layout);
    }
    for (const FlowingTensor& tensor : call_.tensors) {
      if (tensor.flow.kind == Kind::Along && tensor.flow.layout != layout) return mixed(kPairs);
    }
    if (stacks && layout.dimension >= at) ++layout.dimension;
    return along2(layout);
  }
  [[nodiscard]] FlowResult along2(const SampleLayout& layout) const { return all({Kind::Along, layout}); }

  [[nodiscard]] FlowResult piece() const {
    const Kind kind = first().flow.kind;
    if (kind == Kind::Same || kind == Kind::Mixed) return all(first().flow);
    const std::string name = operatorName(*call_.node);
    const auto dimensions = dimensionsOf(*call_.node, rank());
    const std::size_t at = dimensions.empty() ? 0 : dimensions.front();
    SampleLayout layout = first().flow.layout;
    const bool drops = name == "select" || name == "unbind";
    if (layout.dimension != at) {
      if (drops && at < layout.dimension) --layout.dimension;
      return along(layout);
    }
    const bool numbers = kind == Kind::Numbers;
    if (drops) return numbers ? all({}) : mixed(kPicks);
    std::int64_t begin = numberOf("start", 0);
    const std::int64_t size = first().extents[at], step = numberOf("step", 1);
    if (begin < 0) begin += size;
    FlowResult result;
    for (const Extents& extents : call_.results) {
      const auto part = sliced(layout, std::min(begin, size), extents[at], step, call_.batch);
      if (!part) return numbers ? all({}) : mixed(kPicks);
      result.flows.push_back({kind, *part});
      begin += extents[at];
    }
    return result;
  }
  [[nodiscard]] std::int64_t numberOf(std::string_view name, std::int64_t fallback) const {
    const auto found = std::ranges::find_if(call_.numbers, [&](const auto& n) { return n.first == name; });
    return found == call_.numbers.end() ? fallback : found->second;
  }

  /// Merges what several tensors say of the result; they must agree.
  [[nodiscard]] FlowResult agreed(const std::vector<std::optional<SampleLayout>>& layouts) const {
    std::optional<SampleLayout> common;
    for (const auto& layout : layouts) {
      if (layout && common && *layout != *common) return mixed(kPairs);
      if (layout) common = layout;
    }
    if (common) return along2(*common);
    const bool anyMixed = std::ranges::any_of(call_.tensors, [](const FlowingTensor& t) { return t.flow.kind == Kind::Mixed; });
    return all({anyMixed ? Kind::Mixed : Kind::Same, {}});
  }

  /// a · b, preceded by a summand in addmm and baddbmm.
  [[nodiscard]] FlowResult matrixProduct() const {
    const std::size_t skip = operatorName(*call_.node).find("add") != std::string::npos ? 1 : 0;
    if (call_.tensors.size() < skip + 2) return each();
    const FlowingTensor &a = call_.tensors[skip], &b = call_.tensors[skip + 1];
    const std::size_t ra = a.extents.size(), rb = b.extents.size(), out = call_.results.front().size();
    std::vector<std::optional<SampleLayout>> places;
    if (a.flow.kind == Kind::Along) {
      SampleLayout layout = a.flow.layout;
      if (layout.dimension + 1 == ra) return mixed(kReduces);
      const std::size_t fromEnd = ra - layout.dimension - (rb == 1 ? 1 : 0);  // a vector takes the last dimension away
      layout.dimension = out - fromEnd;
      places.emplace_back(layout);
    }
    if (b.flow.kind == Kind::Along) {
      SampleLayout layout = b.flow.layout;
      if (layout.dimension + (rb == 1 ? 1 : 2) == rb) return mixed(kReduces);
      const bool last = layout.dimension + 1 == rb;
      const std::size_t fromEnd = last ? 1 : rb - layout.dimension - (ra == 1 ? 1 : 0);
      layout.dimension = out - fromEnd;
      places.emplace_back(layout);
    }
    if (skip == 1 && first().flow.kind == Kind::Along) places.push_back(placeIn(first(), call_.results.front()));
    return agreed(places);
  }

  /// By the letters of the equation; one without them, as with `...`, is not known.
  [[nodiscard]] FlowResult einsum() const {
    const Argument* argument = argumentOf(*call_.node, {"equation"});
    const auto* text = argument == nullptr ? nullptr : std::get_if<std::string>(argument);
    std::string equation = text == nullptr ? "" : *text;
    std::erase(equation, ' ');
    const std::size_t arrow = equation.find("->");
    if (arrow == std::string::npos || equation.find('.') != std::string::npos) {
      FlowResult guess = each();
      guess.unknown = true;
      return guess;
    }
    const std::string result = equation.substr(arrow + 2);
    std::vector<std::optional<SampleLayout>> places;
    std::size_t begin = 0;
    for (const FlowingTensor& tensor : call_.tensors) {
      const std::size_t end = std::min(equation.find(',', begin), arrow);
      const std::string letters = equation.substr(begin, end - begin);
      begin = end + 1;
      if (tensor.flow.kind != Kind::Along || tensor.flow.layout.dimension >= letters.size()) continue;
      SampleLayout layout = tensor.flow.layout;
      const char letter = letters[layout.dimension];
      const std::size_t at = result.find(letter);
      if (at == std::string::npos) return mixed(kReduces);
      layout.dimension = at;
      places.emplace_back(layout);
    }
    return agreed(places);
  }

  [[nodiscard]] FlowResult attention() const {
    const std::size_t out = call_.results.front().size();
    std::vector<std::optional<SampleLayout>> places;
    for (const FlowingTensor& tensor : call_.tensors) {
      if (tensor.flow.kind != Kind::Along) continue;
      const SampleLayout layout = broadcast(tensor.flow.layout, tensor.extents.size(), out);
      const bool isKey = tensor.argument == "key" || tensor.argument == "value";
      if (isKey ? layout.dimension + 2 == out : layout.dimension + 1 == out) return mixed(kReduces);
      if (tensor.argument == "key" && layout.dimension + 1 == out) return mixed(kReduces);
      places.emplace_back(layout);
    }
    return agreed(places);
  }

  [[nodiscard]] FlowResult trailing() const {
    const Argument* shape = argumentOf(*call_.node, {"normalized_shape"});
    std::size_t count = 1;
    if (shape != nullptr) {
      if (const auto* sizes = std::get_if<std::vector<std::int64_t>>(shape)) count = sizes->size();
      if (const auto* sizes = std::get_if<std::vector<IntOrValue>>(shape)) count = sizes->size();
    }
    return mixedIf(first().flow.layout.dimension + count >= rank(), kReduces, firstIsAlong() ? along(first().flow.layout) : each());
  }

  /// The states have samples in dimension 1, the sequence where it says so.
  [[nodiscard]] FlowResult recurrent() const {
    if (!firstIsAlong()) return each();
    const std::size_t at = rank() == 3 && flagOf(*call_.node, "batch_first", false) ? 0 : 1;
    if (first().flow.layout.dimension != at || rank() != 3) return mixed(kRuns);
    FlowResult result = along(first().flow.layout);
    for (std::size_t r = 1; r < result.flows.size(); ++r) result.flows[r].layout.dimension = 1;
    return result;
  }

  /// The result has the dimensions of the indices first.
  [[nodiscard]] FlowResult lookup() const {
    const FlowingTensor* indices = named("indices") != nullptr ? named("indices") : &first();
    if (indices != &first() && firstIsAlong()) return mixed(kPicks);
    if (indices->flow.kind != Kind::Along) return each();
    FlowResult result = all(indices->flow);
    if (flagOf(*call_.node, "scale_grad_by_freq", false)) result.mixes = "divides gradients by how often all samples have an index";
    return result;
  }

  [[nodiscard]] FlowResult index() const {
    std::vector<const FlowingTensor*> indices;
    for (const FlowingTensor& tensor : call_.tensors) {
      if (tensor.argument == "indices") indices.push_back(&tensor);
    }
    const bool puts = operatorName(*call_.node).starts_with("index_put");
    std::vector<std::optional<SampleLayout>> places;
    std::size_t broadcastRank = 0;
    for (const FlowingTensor* tensor : indices) broadcastRank = std::max(broadcastRank, tensor->extents.size());
    const bool adjacent = indices.empty() || indices.back()->index - indices.front()->index + 1 == indices.size();
    const std::size_t front = indices.empty() || !adjacent ? 0 : indices.front()->index;  // where the result has the indices' dimensions
    bool numbered = false;                                                                // sample by sample, as in x[arange(batch), last]
    for (const FlowingTensor* tensor : indices) {
      if (tensor->flow.kind == Kind::Same || tensor->flow.kind == Kind::Mixed) continue;
      numbered = numbered || (tensor->flow.kind == Kind::Numbers && firstIsAlong() && tensor->index == first().flow.layout.dimension);
      SampleLayout layout = broadcast(tensor->flow.layout, tensor->extents.size(), broadcastRank);
      layout.dimension += front;
      if (tensor->flow.kind == Kind::Along || numbered) places.emplace_back(layout);
    }
    if (firstIsAlong() && !numbered) {
      SampleLayout layout = first().flow.layout;
      const bool picked = std::ranges::any_of(indices, [&](const FlowingTensor* t) { return t->index == layout.dimension; });
      if (picked) return mixed(kPicks);
      const auto before =
          static_cast<std::size_t>(std::ranges::count_if(indices, [&](const FlowingTensor* t) { return t->index < layout.dimension; }));
      if (!adjacent || before > 0) layout.dimension = layout.dimension + broadcastRank - before;
      places.emplace_back(layout);
    }
    if (puts) return firstIsAlong() ? along(first().flow.layout) : each();
    return agreed(places);
  }

  [[nodiscard]] FlowResult gather() const {
    const auto dimensions = dimensionsOf(*call_.node, rank());
    const std::size_t at = dimensions.empty() ? 0 : dimensions.front();
    const std::string name = operatorName(*call_.node);
    if (firstIsAlong()) return mixedIf(first().flow.layout.dimension == at, kPicks, along(first().flow.layout));
    const FlowingTensor* indices = named("index");
    if (indices == nullptr || indices->flow.kind != Kind::Along || name == "index_select") return each();
    return mixedIf(false, kPicks, all(indices->flow));
  }

  [[nodiscard]] FlowResult loss() const {
    const Argument* argument = argumentOf(*call_.node, {"reduction"});
    const auto* code = argument == nullptr ? nullptr : std::get_if<std::int64_t>(argument);
    const bool any = std::ranges::any_of(call_.tensors, [](const FlowingTensor& t) { return t.flow.kind == Kind::Along; });
    if (!any || (code != nullptr && *code == 0)) return sameDimension();
    return mixed(kReduces);
  }

  const FlowingCall& call_;
};

}  // namespace

FlowResult flowThrough(const FlowingCall& call) {
  if (call.tensors.empty()) return {std::vector<SampleFlow>(call.results.size()), std::nullopt};
  return Call(call).run();
}

}  // namespace pw
