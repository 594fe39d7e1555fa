#include "simulator/model/autocast.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

/// Torch's documentation of autocast, "Ops that autocast to float32", as far as ATen names differ from what is promoted anyway.
bool computesInFloat(const std::string& name) {
  constexpr std::array<std::string_view, 40> kNames{"acos",
                                                    "asin",
                                                    "binary_cross_entropy_with_logits",
                                                    "cosh",
                                                    "cosine_embedding_loss",
                                                    "cdist",
                                                    "cosine_similarity",
                                                    "cross_entropy",
                                                    "cross_entropy_loss",
                                                    "cumprod",
                                                    "cumsum",
                                                    "dist",
                                                    "erfinv",
                                                    "exp",
                                                    "expm1",
                                                    "group_norm",
                                                    "hinge_embedding_loss",
                                                    "kl_div",
                                                    "l1_loss",
                                                    "layer_norm",
                                                    "log",
                                                    "log10",
                                                    "log_softmax",
                                                    "log1p",
                                                    "log2",
                                                    "margin_ranking_loss",
                                                    "mse_loss",
                                                    "nll_loss",
                                                    "norm",
                                                    "pdist",
                                                    "pow",
                                                    "prod",
                                                    "reciprocal",
                                                    "rsqrt",
                                                    "sinh",
                                                    "smooth_l1_loss",
                                                    "softmax",
                                                    "softmin",
                                                    "sum",
                                                    "softplus"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Of operators that count FLOPs: those that autocast runs in 16 bits.
bool isProduct(const Node& node) {
  const std::string name = operatorName(node);
  return name.rfind("fft", 0) != 0 && name.rfind("embedding", 0) != 0 && node.target.find("wrap_with_autocast") == std::string::npos;
}

bool isFloat(const ModelGraph& graph, ValueId v) {
  const Value& value = graph.value(v);
  return value.tensor && !value.symbolic && value.tensor->dtype == DType::Float32;
}

}  // namespace

AutocastTypes autocastTypes(const ModelGraph& graph, DType precision, const std::vector<double>& flops) {
  AutocastTypes types{std::vector<bool>(graph.nodes.size(), false), std::vector<bool>(graph.values.size(), false),
                      std::vector<bool>(graph.values.size(), false)};
  if (precision == DType::Unknown) return types;
  std::vector<bool> isRead(graph.values.size(), false), isReadByOthers(graph.values.size(), false);
  const std::vector<ValueId> bases = viewedBases(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    types.casts[n] = flops[n] > 0 && isProduct(node) && !node.outputs.empty() && isFloat(graph, node.outputs.front());
    bool anyFloat = false, allLower = true;
    for (const ValueId v : readsOf(node)) {
      if (!isView(node)) {
        isRead[bases[v.index()].index()] = true;
        if (!types.casts[n]) isReadByOthers[bases[v.index()].index()] = true;
      }
      if (!isFloat(graph, v) || graph.value(v).tensor->sizes.empty()) continue;  // a number does not widen a tensor
      anyFloat = true;
      allLower = allLower && types.isLower[v.index()];
    }
    const bool lower = types.casts[n] || (anyFloat && allLower && !computesInFloat(operatorName(node)));
    for (const ValueId v : node.outputs) types.isLower[v.index()] = lower && isFloat(graph, v);
  }
  for (const ValueId v : graph.outputs) isReadByOthers[bases[v.index()].index()] = true;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    types.isKeptLower[v] = types.isLower[v] || (isFloat(graph, ValueId(v)) && isRead[v] && !isReadByOthers[v]);
  }
  return types;
}

}  // namespace pw
