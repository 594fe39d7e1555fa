#include "simulator/model/mixing_rules.h"

#include <algorithm>
#include <string_view>

#include "simulator/model/mixing_products.h"
#include "simulator/model/node_arguments.h"

namespace pw {
namespace {

using Kind = SampleFlow::Kind;

FlowResult reshape(const CallFlow& c) {
  if (c.first().flow.kind == Kind::Same || c.first().flow.kind == Kind::Mixed) return c.all(c.first().flow);
  const auto layout = reshaped(c.first().flow.layout, c.first().extents, c.call().results.front(), c.call().batch);
  if (layout) return c.followsFirst(*layout);
  return c.firstIsAlong() ? c.mixed(kRegroups) : c.all({});
}

FlowResult permute(const CallFlow& c) {
  if (c.first().flow.kind == Kind::Same || c.first().flow.kind == Kind::Mixed) return c.all(c.first().flow);
  std::vector<std::size_t> order(c.rank());  // of the result's dimensions, which one of the tensor's each is
  for (std::size_t d = 0; d < c.rank(); ++d) order[d] = d;
  const Node& node = c.node();
  const std::string_view name = c.name();
  if (name == "permute") {
    order = dimensionsOf(node, c.rank());
  } else if (name == "movedim" || name == "moveaxis") {
    const auto source = dimensionsOf(node, c.rank(), {"source"}), target = dimensionsOf(node, c.rank(), {"destination"});
    std::erase_if(order, [&](std::size_t d) { return std::ranges::find(source, d) != source.end(); });
    for (std::size_t at = 0; at < c.rank(); ++at) {
      const auto found = std::ranges::find(target, at);
      if (found != target.end())
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), source[static_cast<std::size_t>(found - target.begin())]);
    }
  } else if (name == "numpy_T") {
    std::ranges::reverse(order);
  } else if (c.rank() >= 2) {
    const auto a = dimensionsOf(node, c.rank(), {"dim0", "axis0"}), b = dimensionsOf(node, c.rank(), {"dim1", "axis1"});
    std::swap(order[a.empty() ? c.rank() - 2 : a.front()], order[b.empty() ? c.rank() - 1 : b.front()]);
  }
  SampleLayout layout = c.first().flow.layout;
  const auto found = std::ranges::find(order, layout.dimension);
  if (found == order.end()) return c.each();
  layout.dimension = static_cast<std::size_t>(found - order.begin());
  return c.followsFirst(layout);
}

/// `repeat` appends copies of all rows, `repeat_interleave` repeats each row in place.
FlowResult repeat(const CallFlow& c) {
  if (!c.firstIsAlong() || c.call().results.front().size() < c.rank()) return c.firstIsAlong() ? c.mixed(kRegroups) : c.each();
  SampleLayout layout = broadcast(c.first().flow.layout, c.rank(), c.call().results.front().size());
  const std::int64_t before = c.first().extents[c.first().flow.layout.dimension], after = c.call().results.front()[layout.dimension];
  if (before == 0 || after % before != 0) return c.mixed(kRegroups);
  (c.name() == "repeat_interleave" ? layout.inner : layout.outer) *= after / before;
  return c.followsFirst(layout);
}

FlowResult reduce(const CallFlow& c) {
  if (argumentOf(c.node(), {"other"}) != nullptr || !c.firstIsAlong()) return c.each();  // max of two tensors
  std::vector<std::size_t> dimensions = dimensionsOf(c.node(), c.rank());
  const std::string_view name = c.name();
  if (dimensions.empty() && (name == "mode" || name == "kthvalue")) dimensions = {c.rank() - 1};
  if (dimensions.empty() && name == "cosine_similarity") dimensions = {1};
  SampleLayout layout = c.first().flow.layout;
  if (dimensions.empty() || std::ranges::find(dimensions, layout.dimension) != dimensions.end()) return c.mixed(kReduces);
  if (c.call().results.front().size() < c.rank()) {
    layout.dimension -= static_cast<std::size_t>(std::ranges::count_if(dimensions, [&](std::size_t d) { return d < layout.dimension; }));
  }
  return c.followsFirst(layout);
}

FlowResult scan(const CallFlow& c) {
  if (!c.firstIsAlong()) return c.each();
  std::vector<std::size_t> dimensions = dimensionsOf(c.node(), c.rank());
  const std::string_view name = c.name();
  if (dimensions.empty()) dimensions = {c.rank() - 1};
  if (name.ends_with("2") && name.starts_with("fft") && argumentOf(c.node(), {"dim"}) == nullptr && c.rank() > 1)
    dimensions.push_back(c.rank() - 2);
  const bool ofAll =
      name == "roll" || (name.starts_with("fft_") && (name.ends_with("n") || name.ends_with("shift")));  // where none is named
  const bool flat = ofAll && dimensionsOf(c.node(), c.rank()).empty();
  const bool hit = std::ranges::find(dimensions, c.first().flow.layout.dimension) != dimensions.end();
  // renorm's dimension is the one that it leaves apart.
  return c.mixedIf(flat || (name == "renorm" ? !hit : hit), name == "flip" || name == "roll" ? kPicks : kRuns, c.sameDimension());
}

FlowResult join(const CallFlow& c) {
  const auto leads = std::ranges::find_if(c.call().tensors, [](const FlowingTensor& t) { return t.flow.kind == Kind::Along; });
  if (leads == c.call().tensors.end()) return c.each();
  const bool stacks = c.name() == "stack";
  const std::size_t newRank = c.call().results.front().size();
  const auto dimensions = dimensionsOf(c.node(), newRank);
  const std::size_t at = dimensions.empty() ? 0 : dimensions.front();
  SampleLayout layout = leads->flow.layout;
  if (!stacks && layout.dimension == at) {
    std::int64_t outer = 0;
    for (const FlowingTensor& tensor : c.call().tensors) {
      const std::int64_t size = at < tensor.extents.size() ? tensor.extents[at] : 0;
      const bool fits = tensor.flow.kind == Kind::Along ? tensor.flow.layout.dimension == at && tensor.flow.layout.inner == layout.inner
                                                        : size % (c.call().batch * layout.inner) == 0;
      if (!fits) return c.mixed(kRegroups);
      outer += size / (c.call().batch * layout.inner);
    }
    layout.outer = outer;
    return c.along(layout);
  }
  for (const FlowingTensor& tensor : c.call().tensors) {
    if (tensor.flow.kind == Kind::Along && tensor.flow.layout != layout) return c.mixed(kPairs);
  }
  if (stacks && layout.dimension >= at) ++layout.dimension;
  return c.along(layout);
}

FlowResult piece(const CallFlow& c) {
  const Kind kind = c.first().flow.kind;
  if (kind == Kind::Same || kind == Kind::Mixed) return c.all(c.first().flow);
  const std::string_view name = c.name();
  const auto dimensions = dimensionsOf(c.node(), c.rank());
  const std::size_t at = dimensions.empty() ? 0 : dimensions.front();
  SampleLayout layout = c.first().flow.layout;
  const bool drops = name == "select" || name == "unbind";
  if (layout.dimension != at) {
    if (drops && at < layout.dimension) --layout.dimension;
    return c.followsFirst(layout);
  }
  const bool numbers = kind == Kind::Numbers;
  if (drops) return numbers ? c.all({}) : c.mixed(kPicks);
  std::int64_t begin = c.numberOf("start", 0);
  const std::int64_t size = c.first().extents[at], step = c.numberOf("step", 1);
  if (begin < 0) begin += size;
  FlowResult result;
  for (const Extents& extents : c.call().results) {
    const auto part = sliced(layout, std::min(begin, size), extents[at], step, c.call().batch);
    if (!part) return numbers ? c.all({}) : c.mixed(kPicks);
    result.flows.push_back({kind, *part});
    begin += extents[at];
  }
  return result;
}
FlowResult trailing(const CallFlow& c) {
  const Argument* shape = argumentOf(c.node(), {"normalized_shape"});
  std::size_t count = 1;
  if (shape != nullptr) {
    if (const auto* sizes = std::get_if<std::vector<std::int64_t>>(shape)) count = sizes->size();
    if (const auto* sizes = std::get_if<std::vector<IntOrValue>>(shape)) count = sizes->size();
  }
  return c.mixedIf(c.first().flow.layout.dimension + count >= c.rank(), kReduces,
                   c.firstIsAlong() ? c.followsFirst(c.first().flow.layout) : c.each());
}

/// The states have samples in dimension 1, the sequence where it says so.
FlowResult recurrent(const CallFlow& c) {
  if (!c.firstIsAlong()) return c.each();
  const std::size_t at = c.rank() == 3 && flagOf(c.node(), "batch_first", false) ? 0 : 1;
  if (c.first().flow.layout.dimension != at || c.rank() != 3) return c.mixed(kRuns);
  FlowResult result = c.followsFirst(c.first().flow.layout);
  for (std::size_t r = 1; r < result.flows.size(); ++r) result.flows[r].layout.dimension = 1;
  return result;
}

/// The result has the dimensions of the indices first.
FlowResult lookup(const CallFlow& c) {
  const FlowingTensor* indices = c.named("indices") != nullptr ? c.named("indices") : &c.first();
  if (indices != &c.first() && c.firstIsAlong()) return c.mixed(kPicks);
  if (indices->flow.kind != Kind::Along) return c.each();
  FlowResult result = c.all(indices->flow);
  if (flagOf(c.node(), "scale_grad_by_freq", false)) result.mixes = "divides gradients by how often all samples have an index";
  return result;
}

FlowResult index(const CallFlow& c) {
  std::vector<const FlowingTensor*> indices;
  for (const FlowingTensor& tensor : c.call().tensors) {
    if (tensor.argument == "indices") indices.push_back(&tensor);
  }
  const bool puts = c.name().starts_with("index_put");
  std::vector<std::optional<SampleLayout>> places;
  std::size_t broadcastRank = 0;
  for (const FlowingTensor* tensor : indices) broadcastRank = std::max(broadcastRank, tensor->extents.size());
  const bool adjacent = indices.empty() || indices.back()->index - indices.front()->index + 1 == indices.size();
  const std::size_t front = indices.empty() || !adjacent ? 0 : indices.front()->index;  // where the result has the indices' dimensions
  bool numbered = false;                                                                // sample by sample, as in x[arange(batch), last]
  for (const FlowingTensor* tensor : indices) {
    if (tensor->flow.kind == Kind::Same || tensor->flow.kind == Kind::Mixed) continue;
    numbered = numbered || (tensor->flow.kind == Kind::Numbers && c.firstIsAlong() && tensor->index == c.first().flow.layout.dimension);
    SampleLayout layout = broadcast(tensor->flow.layout, tensor->extents.size(), broadcastRank);
    layout.dimension += front;
    if (tensor->flow.kind == Kind::Along || numbered) places.emplace_back(layout);
  }
  if (c.firstIsAlong() && !numbered) {
    SampleLayout layout = c.first().flow.layout;
    const bool picked = std::ranges::any_of(indices, [&](const FlowingTensor* t) { return t->index == layout.dimension; });
    if (picked) return c.mixed(kPicks);
    const auto before =
        static_cast<std::size_t>(std::ranges::count_if(indices, [&](const FlowingTensor* t) { return t->index < layout.dimension; }));
    if (!adjacent || before > 0) layout.dimension = layout.dimension + broadcastRank - before;
    places.emplace_back(layout);
  }
  if (puts) return c.firstIsAlong() ? c.followsFirst(c.first().flow.layout) : c.each();
  return c.agreed(places);
}

FlowResult gather(const CallFlow& c) {
  const auto dimensions = dimensionsOf(c.node(), c.rank());
  const std::size_t at = dimensions.empty() ? 0 : dimensions.front();
  const std::string_view name = c.name();
  if (c.firstIsAlong()) return c.mixedIf(c.first().flow.layout.dimension == at, kPicks, c.followsFirst(c.first().flow.layout));
  const FlowingTensor* indices = c.named("index");
  if (indices == nullptr || indices->flow.kind != Kind::Along || name == "index_select") return c.each();
  return c.mixedIf(false, kPicks, c.all(indices->flow));
}

FlowResult loss(const CallFlow& c) {
  const Argument* argument = argumentOf(c.node(), {"reduction"});
  const auto* code = argument == nullptr ? nullptr : std::get_if<std::int64_t>(argument);
  const bool any = std::ranges::any_of(c.call().tensors, [](const FlowingTensor& t) { return t.flow.kind == Kind::Along; });
  if (!any || (code != nullptr && *code == 0)) return c.sameDimension();
  return c.mixed(kReduces);
}

FlowResult byRule(const CallFlow& c) {
  switch (c.op().dimensions) {
    case DimensionRule::Each:
    case DimensionRule::EachSample: return c.each();
    case DimensionRule::Sizes: return c.all({});
    case DimensionRule::Reshape: return reshape(c);
    case DimensionRule::Permute: return permute(c);
    case DimensionRule::Expand: return c.each(1);
    case DimensionRule::Repeat: return repeat(c);
    case DimensionRule::Reduce: return reduce(c);
    case DimensionRule::Scan: return scan(c);
    case DimensionRule::Join: return join(c);
    case DimensionRule::Piece: return piece(c);
    case DimensionRule::MatMul: return throughMatrixProduct(c);
    case DimensionRule::Linear: return c.mixedIf(c.first().flow.layout.dimension + 1 == c.rank(), kReduces, c.sameDimension());
    case DimensionRule::Attention: return throughAttention(c);
    case DimensionRule::Spatial:
      return c.mixedIf(c.first().flow.layout.dimension != 0 || (c.spatial() > 0 && c.rank() != c.spatial() + 2), kReduces,
                       c.sameDimension());
    case DimensionRule::Pool: return c.mixedIf(c.first().flow.layout.dimension + c.spatial() >= c.rank(), kReduces, c.sameDimension());
    case DimensionRule::Trailing: return trailing(c);
    case DimensionRule::Group: return c.mixedIf(c.first().flow.layout.dimension != 0, kReduces, c.sameDimension());
    case DimensionRule::Recurrent: return recurrent(c);
    case DimensionRule::Lookup: return lookup(c);
    case DimensionRule::Index: return index(c);
    case DimensionRule::Gather: return gather(c);
    case DimensionRule::Loss: return loss(c);
    case DimensionRule::Matrix: return c.mixedIf(c.first().flow.layout.dimension + 2 >= c.rank(), kRuns, c.sameDimension());
    case DimensionRule::BatchNorm: return c.sameDimension();
    case DimensionRule::Einsum: return throughEinsum(c);
    case DimensionRule::Unknown: break;
  }
  FlowResult guess = c.each();
  guess.unknown = !guess.mixes && std::ranges::any_of(c.call().tensors, [](const FlowingTensor& t) {
    return t.flow.kind == Kind::Along || t.flow.kind == Kind::Numbers;
  });
  return guess;
}

}  // namespace

FlowResult flowThrough(const FlowingCall& call) {
  if (call.tensors.empty()) return {std::vector<SampleFlow>(call.results.size()), std::nullopt};
  return byRule(CallFlow(call));
}

}  // namespace pw
