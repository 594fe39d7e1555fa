#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "schedules/named_values.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// How estimates count attention. Fused kernels (FlashAttention, Dao et al. 2022) never write scores and probabilities, whose size is
/// queries × keys, to memory.
enum class Attention : std::uint8_t {
  AsTraced,  ///< `scaled_dot_product_attention` as a fused kernel, products around a softmax as they are
  Fused,     ///< these as a fused kernel, too
  Unfused,   ///< `scaled_dot_product_attention` as two products and a softmax
};
constexpr std::string_view nameOf(Attention attention) {
  switch (attention) {
    case Attention::AsTraced: return "traced";
    case Attention::Fused: return "fused";
    case Attention::Unfused: return "unfused";
  }
  return {};
}

/// By value: whether a fused kernel keeps it in registers. All from a product of two computed tensors through element-wise operators and
/// views to a softmax, and from there to another product, if nothing else reads them. Cost: linear.
[[nodiscard]] std::vector<bool> fusedAttentionValues(const ModelGraph& graph);

/// Elements of the scores of a `scaled_dot_product_attention` or one of its kernels: those of the query without its last dimension × keys.
/// 0 for other operators, nothing where a size depends on data.
[[nodiscard]] std::optional<double> attentionScores(const ModelGraph& graph, const Node& node, const Bindings& bindings);

}  // namespace pw
