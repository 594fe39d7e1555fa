#include "simulator/model/dimension_rule.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

using Rule = DimensionRule;

struct Entry {
  std::string_view name;
  Rule rule;
};

/// Each element, or each sample where the result has other dimensions after that of the samples, on its own; several tensors are broadcast.
constexpr std::string_view kEach[] = {
    "abs", "absolute", "acos", "acosh", "arccos", "arccosh", "asin", "asinh", "arcsin", "arcsinh", "atan", "atanh", "arctan", "arctanh", "atan2",
    "arctan2", "ceil", "floor", "round", "trunc", "fix", "frac", "cos", "cosh", "sin", "sinh", "tan", "tanh", "erf", "erfc", "erfinv", "exp",
    "exp2", "expm1", "log", "log10", "log1p", "log2", "logit", "lgamma", "digamma", "polygamma", "i0", "sinc", "neg", "negative", "positive",
    "reciprocal", "rsqrt", "sqrt", "square", "sigmoid", "sign", "sgn", "signbit", "relu", "relu6", "elu", "celu", "selu", "gelu", "silu", "mish",
    "leaky_relu", "prelu", "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "softplus", "log_sigmoid", "log_sigmoid_forward",
    "threshold", "tanhshrink", "rrelu", "rrelu_with_noise", "deg2rad", "rad2deg", "isnan", "isinf", "isfinite", "isposinf", "isneginf",
    "logical_not", "bitwise_not", "nan_to_num", "angle", "real", "imag", "conj", "_conj", "conj_physical", "resolve_conj", "resolve_neg",
    "view_as_real", "view_as_complex", "complex", "polar", "add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide",
    "floor_divide", "remainder", "fmod", "pow", "float_power", "hypot", "maximum", "minimum", "fmax", "fmin", "eq", "ne", "gt", "ge", "lt", "le",
    "equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__",
    "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "copysign", "nextafter", "ldexp", "logaddexp", "logaddexp2", "xlogy", "lerp",
    "heaviside", "addcmul", "addcdiv", "where", "masked_fill", "clamp", "clamp_min", "clamp_max", "clip", "isclose",
    "broadcast_tensors", "gcd", "lcm", "clone",
    "contiguous", "detach", "alias", "to", "_to_copy", "type_as", "copy", "lift_fresh_copy", "lift_fresh", "lift", "fill", "zero",
    "requires_grad", "dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "bernoulli", "normal", "uniform",
    "random", "exponential", "cauchy", "log_normal", "geometric", "poisson", "bucketize", "pad", "constant_pad_nd", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator", "im2col",
    "col2im", "unfold", "diag_embed", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "sym_numel", "sym_storage_offset", "item",
    "_local_scalar_dense", "is_nonzero", "sym_constrain_range", "sym_constrain_range_for_size",
};

constexpr Entry kRules[] = {
    {"zeros_like", Rule::Sizes}, {"ones_like", Rule::Sizes}, {"full_like", Rule::Sizes}, {"empty_like", Rule::Sizes}, {"rand_like", Rule::Sizes},
    {"randn_like", Rule::Sizes}, {"randint_like", Rule::Sizes}, {"new_zeros", Rule::Sizes}, {"new_ones", Rule::Sizes}, {"new_full", Rule::Sizes},
    {"new_empty", Rule::Sizes}, {"sym_size", Rule::Sizes}, {"_assert_tensor_metadata", Rule::Sizes},
    {"view", Rule::Reshape}, {"_unsafe_view", Rule::Reshape}, {"reshape", Rule::Reshape}, {"flatten", Rule::Reshape}, {"unflatten", Rule::Reshape},
    {"ravel", Rule::Reshape}, {"squeeze", Rule::Reshape}, {"unsqueeze", Rule::Reshape}, {"view_as", Rule::Reshape}, {"reshape_as", Rule::Reshape},
    {"permute", Rule::Permute}, {"transpose", Rule::Permute}, {"t", Rule::Permute}, {"mT", Rule::Permute}, {"numpy_T", Rule::Permute},
    {"swapaxes", Rule::Permute}, {"swapdims", Rule::Permute}, {"movedim", Rule::Permute}, {"moveaxis", Rule::Permute}, {"adjoint", Rule::Permute},
    {"expand", Rule::Expand}, {"expand_as", Rule::Expand}, {"broadcast_to", Rule::Expand}, {"repeat", Rule::Repeat}, {"tile", Rule::Repeat},
    {"repeat_interleave", Rule::Repeat},
    {"mean", Rule::Reduce}, {"sum", Rule::Reduce}, {"prod", Rule::Reduce}, {"amax", Rule::Reduce}, {"amin", Rule::Reduce}, {"max", Rule::Reduce},
    {"min", Rule::Reduce}, {"var", Rule::Reduce}, {"std", Rule::Reduce}, {"var_mean", Rule::Reduce}, {"std_mean", Rule::Reduce}, {"norm", Rule::Reduce},
    {"linalg_vector_norm", Rule::Reduce}, {"logsumexp", Rule::Reduce}, {"all", Rule::Reduce}, {"any", Rule::Reduce}, {"argmax", Rule::Reduce},
    {"argmin", Rule::Reduce}, {"median", Rule::Reduce}, {"nanmedian", Rule::Reduce}, {"mode", Rule::Reduce}, {"kthvalue", Rule::Reduce},
    {"nansum", Rule::Reduce}, {"nanmean", Rule::Reduce}, {"count_nonzero", Rule::Reduce}, {"aminmax", Rule::Reduce}, {"cosine_similarity", Rule::Reduce},
    {"softmax", Rule::Scan}, {"_softmax", Rule::Scan}, {"log_softmax", Rule::Scan}, {"_log_softmax", Rule::Scan}, {"_safe_softmax", Rule::Scan},
    {"cumsum", Rule::Scan}, {"cumprod", Rule::Scan}, {"cummax", Rule::Scan}, {"cummin", Rule::Scan}, {"logcumsumexp", Rule::Scan}, {"sort", Rule::Scan},
    {"argsort", Rule::Scan}, {"topk", Rule::Scan}, {"flip", Rule::Scan}, {"roll", Rule::Scan}, {"renorm", Rule::Scan}, {"diff", Rule::Scan},
    {"glu", Rule::Scan}, {"linalg_cross", Rule::Scan}, {"fft_fft", Rule::Scan}, {"fft_ifft", Rule::Scan}, {"fft_rfft", Rule::Scan},
    {"fft_irfft", Rule::Scan}, {"fft_fft2", Rule::Scan}, {"fft_ifft2", Rule::Scan}, {"fft_fftn", Rule::Scan}, {"fft_rfft2", Rule::Scan},
    {"cat", Rule::Join}, {"concat", Rule::Join}, {"stack", Rule::Join}, {"select", Rule::Piece}, {"slice", Rule::Piece}, {"narrow", Rule::Piece},
    {"split", Rule::Piece}, {"split_with_sizes", Rule::Piece}, {"tensor_split", Rule::Piece}, {"chunk", Rule::Piece}, {"unbind", Rule::Piece},
    {"matmul", Rule::MatMul}, {"mm", Rule::MatMul}, {"bmm", Rule::MatMul}, {"mv", Rule::MatMul}, {"addmm", Rule::MatMul}, {"baddbmm", Rule::MatMul},
    {"linear", Rule::Linear}, {"scaled_dot_product_attention", Rule::Attention}, {"conv1d", Rule::Spatial}, {"conv2d", Rule::Spatial},
    {"conv3d", Rule::Spatial}, {"convolution", Rule::Spatial}, {"conv_transpose1d", Rule::Spatial}, {"conv_transpose2d", Rule::Spatial},
    {"conv_transpose3d", Rule::Spatial}, {"max_pool1d", Rule::Pool}, {"max_pool2d", Rule::Pool}, {"max_pool3d", Rule::Pool}, {"avg_pool1d", Rule::Pool},
    {"avg_pool2d", Rule::Pool}, {"avg_pool3d", Rule::Pool}, {"adaptive_avg_pool1d", Rule::Pool}, {"adaptive_avg_pool2d", Rule::Pool},
    {"adaptive_avg_pool3d", Rule::Pool}, {"adaptive_max_pool1d", Rule::Pool}, {"adaptive_max_pool2d", Rule::Pool}, {"max_pool2d_with_indices", Rule::Pool},
    {"layer_norm", Rule::Trailing}, {"native_layer_norm", Rule::Trailing}, {"rms_norm", Rule::Trailing}, {"group_norm", Rule::Group},
    {"native_group_norm", Rule::Group}, {"instance_norm", Rule::Group}, {"lstm", Rule::Recurrent}, {"gru", Rule::Recurrent}, {"rnn_tanh", Rule::Recurrent},
    {"rnn_relu", Rule::Recurrent}, {"embedding", Rule::Lookup}, {"one_hot", Rule::Lookup}, {"index", Rule::Index}, {"index_put", Rule::Index},
    {"gather", Rule::Gather}, {"scatter", Rule::Gather}, {"scatter_add", Rule::Gather}, {"scatter_reduce", Rule::Gather}, {"index_select", Rule::Gather},
    {"index_add", Rule::Gather}, {"index_copy", Rule::Gather}, {"index_fill", Rule::Gather}, {"take_along_dim", Rule::Gather},
    {"cross_entropy_loss", Rule::Loss}, {"nll_loss", Rule::Loss}, {"nll_loss2d", Rule::Loss}, {"nll_loss_nd", Rule::Loss}, {"mse_loss", Rule::Loss},
    {"l1_loss", Rule::Loss}, {"smooth_l1_loss", Rule::Loss}, {"huber_loss", Rule::Loss}, {"binary_cross_entropy", Rule::Loss},
    {"binary_cross_entropy_with_logits", Rule::Loss}, {"kl_div", Rule::Loss}, {"poisson_nll_loss", Rule::Loss},
    {"tril", Rule::Matrix}, {"triu", Rule::Matrix}, {"linalg_inv", Rule::Matrix},
    {"inverse", Rule::Matrix}, {"linalg_solve", Rule::Matrix},
    {"linalg_svd", Rule::Matrix}, {"linalg_qr", Rule::Matrix}, {"linalg_cholesky", Rule::Matrix}, {"linalg_matrix_exp", Rule::Matrix},
    {"soft_margin_loss", Rule::Loss},
    {"ctc_loss", Rule::Loss}, {"triplet_margin_loss", Rule::Loss}, {"cosine_embedding_loss", Rule::Loss}, {"margin_ranking_loss", Rule::Loss},
    {"hinge_embedding_loss", Rule::Loss}, {"multi_margin_loss", Rule::Loss}, {"multilabel_margin_loss", Rule::Loss}, {"linalg_norm", Rule::Reduce},
    {"fft_ifftn", Rule::Scan}, {"fft_rfftn", Rule::Scan}, {"fft_irfftn", Rule::Scan}, {"fft_irfft2", Rule::Scan}, {"fft_hfft", Rule::Scan},
    {"fft_fftshift", Rule::Scan}, {"fft_ifftshift", Rule::Scan}, {"cross", Rule::Scan}, {"softmin", Rule::Scan}, {"_unsafe_index", Rule::Index},
    {"_fused_rms_norm", Rule::Trailing}, {"_scaled_dot_product_flash_attention_for_cpu", Rule::Attention}, {"einsum", Rule::Einsum},
    {"linalg_eigh", Rule::Matrix}, {"linalg_eig", Rule::Matrix}, {"linalg_det", Rule::Matrix}, {"linalg_slogdet", Rule::Matrix},
    {"linalg_inv_ex", Rule::Matrix}, {"linalg_pinv", Rule::Matrix}, {"linalg_cholesky_ex", Rule::Matrix}, {"cholesky", Rule::Matrix},
    {"linalg_solve_triangular", Rule::Matrix}, {"linalg_matrix_power", Rule::Matrix}, {"matrix_exp", Rule::Matrix},
    {"batch_norm", Rule::BatchNorm}, {"native_batch_norm", Rule::BatchNorm}, {"_native_batch_norm_legit", Rule::BatchNorm},
};

}  // namespace

DimensionRule dimensionRuleOf(const Node& node) {
  std::string name = operatorName(node);
  if (isInPlace(node) && name.back() == '_') name.pop_back();
  if (name.starts_with("new_") || name.starts_with("_assert")) return Rule::Sizes;
  const auto* found = std::find_if(std::begin(kRules), std::end(kRules), [&](const Entry& entry) { return entry.name == name; });
  if (found != std::end(kRules)) return found->rule;
  const bool isEach = name.starts_with("special_") || std::find(std::begin(kEach), std::end(kEach), name) != std::end(kEach);
  return isEach ? Rule::Each : Rule::Unknown;
}

}  // namespace pw
