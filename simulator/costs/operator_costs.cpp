#include "simulator/costs/operator_costs.h"
#include "simulator/costs/expected_sizes.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "schedules/error.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

/// With a rule in operator_flops.cpp.
constexpr std::string_view kFlops =
    "linear mm bmm matmul mv dot vdot inner addmm addmv addbmm baddbmm einsum tensordot chain_matmul bilinear cdist _int_mm _scaled_mm "
    "_grouped_mm _scaled_grouped_mm conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d "
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention embedding_bag _embedding_bag lstm gru rnn_tanh rnn_relu "
    "lstm_cell gru_cell "
    "rnn_tanh_cell rnn_relu_cell fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn "
    "fft_ifftn "
    "fft_rfftn fft_irfftn _fft_r2c _fft_c2c _fft_c2r";

/// The operators that torch 2.11 tags `pointwise`, those made of such ones, reductions, copies, pooling, indexing, losses and norms.
constexpr std::string_view kBytes =
    "abs absolute acos acosh add addcdiv addcmul angle arccos arcsin arctan arctan2 asin asinh atan atan2 atanh bitwise_and "
    "bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip clone conj_physical resolve_conj resolve_neg "
    "copysign cos cosh "
    "deg2rad digamma div divide elu eq equal erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac frexp "
    "gcd ge gelu glu gt "
    "greater greater_equal hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 igamma igammac isclose isfinite isinf isnan "
    "isneginf isposinf isreal "
    "lcm ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 log_sigmoid logaddexp logaddexp2 logical_and logical_not "
    "logical_or "
    "logical_xor logit lt masked_fill max maximum min minimum mish mul multiply mvlgamma nan_to_num ne neg negative nextafter not_equal "
    "polar complex "
    "polygamma positive pow prelu _prelu_kernel rad2deg reciprocal relu relu6 remainder round rrelu rsqrt rsub selu sgn sigmoid sign "
    "signbit silu sin sinc "
    "sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold true_divide trunc where xlogy "
    "special_bessel_j0 special_bessel_j1 special_entr special_erfcx special_expit special_expm1 special_gammaln special_i0 special_i0e "
    "special_i1 "
    "special_i1e special_log1p special_log_ndtr special_ndtr special_ndtri special_xlog1py special_xlogy special_zeta "
    "__and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ "
    // Reductions and scans.
    "all any amax amin aminmax argmax argmin count_nonzero cummax cummin cumprod cumsum logcumsumexp logsumexp mean median mode nanmean "
    "nanmedian nansum "
    "norm linalg_vector_norm frobenius_norm nuclear_norm prod quantile nanquantile std std_mean sum sum_to_size trace var var_mean "
    "cosine_similarity "
    "pairwise_distance dist linalg_norm softmax _softmax log_softmax _log_softmax _safe_softmax gumbel_softmax masked_softmax bincount "
    "histc "
    // Order and search.
    "argsort sort msort topk kthvalue searchsorted bucketize unique_consecutive _unique _unique2 unique_dim isin "
    // Indexing, copies and shapes that move memory.
    "index index_select index_add index_copy index_fill index_put _unsafe_index _unsafe_index_put _index_put_impl gather scatter "
    "scatter_add scatter_reduce "
    "select_scatter slice_scatter diagonal_scatter as_strided_scatter masked_scatter masked_select nonzero nonzero_static argwhere take "
    "take_along_dim put "
    "embedding one_hot cat concat concatenate stack hstack vstack dstack column_stack block_diag repeat repeat_interleave tile roll flip "
    "fliplr flipud rot90 "
    "tril triu diag diag_embed diagflat copy fill zero lift lift_fresh lift_fresh_copy contiguous _to_copy to type_as float half double "
    "bfloat16 long int "
    "bool cartesian_prod combinations meshgrid constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d "
    "replication_pad3d _pad_circular pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im unfold_copy "
    "view_copy expand_copy "
    "permute_copy outer ger kron cross linalg_cross renorm clip_grad_norm renorm_ trapezoid diff gradient corrcoef cov addr "
    // Making tensors.
    "arange linspace logspace eye full full_like new_full new_ones new_zeros new_empty new_tensor new_empty_strided ones ones_like "
    "scalar_tensor zeros "
    "zeros_like tril_indices triu_indices rand rand_like randn randn_like randint randint_like randperm bernoulli multinomial normal "
    "normal_functional "
    "uniform exponential poisson geometric log_normal cauchy random hann_window hamming_window blackman_window bartlett_window "
    "kaiser_window "
    // Norms, dropout, pooling, resampling.
    "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training "
    "_batch_norm_impl_index "
    "cudnn_batch_norm group_norm native_group_norm instance_norm layer_norm native_layer_norm rms_norm _fused_rms_norm local_response_norm "
    "normalize "
    "_weight_norm _weight_norm_interface dropout native_dropout alpha_dropout feature_dropout feature_alpha_dropout _fused_dropout "
    "rrelu_with_noise "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d "
    "adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices "
    "max_pool3d_with_indices max_unpool2d max_unpool3d lp_pool1d lp_pool2d fractional_max_pool2d fractional_max_pool3d upsample_nearest1d "
    "upsample_nearest2d "
    "upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d "
    "upsample_bilinear2d "
    "_upsample_bilinear2d_aa upsample_bicubic2d _upsample_bicubic2d_aa upsample_trilinear3d interpolate grid_sampler grid_sampler_2d "
    "grid_sampler_3d "
    "affine_grid_generator fft_fftshift fft_ifftshift fft_fftfreq fft_rfftfreq "
    // Losses.
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy_loss ctc_loss _ctc_loss gaussian_nll_loss "
    "hinge_embedding_loss "
    "huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d nll_loss_nd "
    "nll_loss_forward "
    "nll_loss2d_forward poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss "
    // Quantization to and from.
    "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine _fake_quantize_learnable_per_tensor_affine "
    "quantize_per_tensor dequantize";

/// Views that `isView` does not follow, memory without contents, and what is read without being moved.
constexpr std::string_view kNothing =
    "empty empty_like empty_strided empty_permuted conj _conj neg_view _neg_view numel size sym_size sym_numel sym_stride "
    "sym_storage_offset item "
    "_local_scalar_dense is_same_size dim stride storage_offset requires_grad_ set_ resize_ broadcast_tensors atleast_1d atleast_2d "
    "atleast_3d matrix_H "
    "split_copy unsafe_split unsafe_chunk unsafe_split_with_sizes hsplit vsplit dsplit squeeze_copy swapdims pin_memory is_floating_point "
    "is_complex "
    "detach squeeze unsqueeze t transpose swapaxes as_strided _reshape_alias _unsafe_view align_to rename refine_names linalg_diagonal "
    "_version _has_compatible_shallow_copy_type";

std::set<std::string_view> namesOf(std::string_view list) {
  std::set<std::string_view> names;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(' ', begin), list.size());
    if (end > begin) names.insert(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

bool hasSubgraph(const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [](const NamedArgument& a) { return std::holds_alternative<GraphArg>(a.value); });
}

std::string shortName(const Node& node) {
  static const std::string higherOrder = "torch.ops.higher_order.";
  return node.target.rfind(higherOrder, 0) == 0 ? node.target.substr(higherOrder.size()) : operatorName(node);
}

/// Collects entries in the order of their first calls.
class Collector {
 public:
  Collector(const ModelGraph& graph, const Bindings& bindings) : graph_(graph), bindings_(bindings) {}

  void visit(const Node& node, const std::string& around) {
    const std::string module = node.modules.empty() || node.modules.back().path.empty() ? around : node.modules.back().path;
    switch (countingOf(node)) {
      case Counting::ByFlops:
      case Counting::ByBytes:
        if (dependsOnData(node)) add(node, module, "its size is data-dependent");
        break;
      case Counting::BySubgraph:
        if (node.target == "torch.ops.higher_order.while_loop")
          add(node, module, "one iteration counted: the number of iterations is unknown");
        break;
      case Counting::Nothing: break;
      case Counting::Unknown: add(node, module, "no rule for its cost"); break;
    }
    for (const NamedArgument& argument : node.inputs) {
      const auto* inner = std::get_if<GraphArg>(&argument.value);
      if (inner == nullptr) continue;
      for (const Node& nested : graph_.subgraphs[inner->index].nodes) visit(nested, module);
    }
  }

  std::vector<NotCounted> list;

 private:
  [[nodiscard]] bool dependsOnData(const Node& node) const {
    try {
      static_cast<void>(forwardFlops(graph_, node, bindings_));
      const auto sized = [&](ValueId v) {
        if (graph_.value(v).tensor && !graph_.value(v).symbolic) static_cast<void>(bytesOf(*graph_.value(v).tensor, bindings_));
      };
      for (const ValueId v : node.outputs) sized(v);
      if (!isView(node)) {
        for (const ValueId v : readsOf(node)) sized(v);
      }
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  void add(const Node& node, const std::string& module, const char* why) {
    const std::string op = shortName(node);
    const auto [found, isNew] = places_.try_emplace({op, module, why}, list.size());
    isNew ? static_cast<void>(list.push_back({op, module, why, 1})) : static_cast<void>(++list[found->second].count);
  }

  const ModelGraph& graph_;
  const Bindings& bindings_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places_;
};

}  // namespace

Counting countingOf(const Node& node) {
  static const std::set<std::string_view> flops = namesOf(kFlops), bytes = namesOf(kBytes), nothing = namesOf(kNothing);
  if (node.target.rfind("torch.ops.", 0) != 0 || isAssertion(node)) return Counting::Nothing;
  if (hasSubgraph(node)) return Counting::BySubgraph;
  std::string name = operatorName(node);
  if (name == "torch.ops.transformers.grouped_mm_fallback.default") return Counting::ByFlops;
  if (isInPlace(node) && name.back() == '_' && !name.ends_with("__")) name.pop_back();
  if (flops.contains(name)) return Counting::ByFlops;
  if (bytes.contains(name)) return Counting::ByBytes;
  return isView(node) || nothing.contains(name) || nothing.contains(operatorName(node)) ? Counting::Nothing : Counting::Unknown;
}

std::vector<NotCounted> notCounted(const ModelGraph& graph, std::int64_t microbatch) {
  const Bindings bindings = bindExpected(graph, microbatch);
  Collector collector(graph, bindings);
  for (const Node& node : graph.nodes) collector.visit(node, "");
  return std::move(collector.list);
}

std::string words(const std::vector<NotCounted>& list, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i) {
    const NotCounted& one = list[i];
    text += fmt::format("{}{}{}{} ({})", i == 0 ? "not counted: " : ", ", one.count > 1 ? fmt::format("{} × ", one.count) : "", one.op,
                        one.module.empty() ? "" : " in " + one.module, one.why);
  }
  if (list.size() > most) text += fmt::format(", and {} more", list.size() - most);
  return text;
}

}  // namespace pw
