#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pw {

/// How the dimensions of an operator's results come from those of its tensors. What follows the samples of a batch (`flowThrough`) and what
/// cuts an operator into shards (`shardingsOf`) read it. "Passes": a block of that dimension gives a block of the results.
enum class DimensionRule : std::uint8_t {
  Each,        ///< every element on its own, tensors broadcast against each other: all dimensions pass
  EachSample,  ///< dimension 0 passes, all others belong together: padding, resampling, cells
  Sizes,       ///< depends on sizes only
  Reshape,     ///< the same elements in row-major order under other sizes
  Permute,     ///< dimensions in another order
  Expand,      ///< dimensions of size 1 repeated without a copy
  Repeat,      ///< dimensions repeated
  Reduce,      ///< the dimensions named by `dim` go, all if none is named; `combines` joins what shards of them give
  Scan,        ///< runs along the dimension named by `dim`; the others pass
  Join,        ///< several tensors one after the other along `dim`
  Piece,       ///< parts of the dimension `dim`; the others pass
  MatMul,      ///< `left` · the next tensor: […, m, k] · […, k, n]; k is summed over, a tensor before `left` is added
  Linear,      ///< […, k] · [n, k]ᵀ + [n]; k is summed over
  Attention,   ///< leading dimensions and queries pass, keys belong together
  Spatial,     ///< convolution: samples and output channels pass, input channels are summed over
  Pool,        ///< the last dimensions, as many as the name says, belong together
  Trailing,    ///< the dimensions of `normalized_shape` belong together
  Group,       ///< dimension 0 passes, all others belong together
  Recurrent,   ///< samples pass
  Lookup,      ///< rows of a table: the dimensions of the indices pass, and the table's columns
  Index,       ///< picks by tensors of indices; dimensions without one pass
  Gather,      ///< picks along `dim`; the others pass
  Loss,        ///< of each element, then as `reduction` says
  Matrix,      ///< of each matrix in the last two dimensions
  BatchNorm,   ///< channels pass; statistics join samples
  Einsum,      ///< by the letters of its equation
  Unknown,
};

/// How results of the shards of a reduced dimension make the whole result; `Mean` of shards of equal size.
enum class Combination : std::uint8_t { None, Sum, Mean, Product, Maximum, Minimum };

/// How the work of an operator is estimated: by the memory it moves, or by its floating point operations
/// (simulator/costs/operator_flops.h).
enum class Work : std::uint8_t {
  Unknown,
  Nothing,  ///< views, assertions, numbers, memory without contents
  Memory,   ///< what it reads and writes: element-wise operators, reductions, copies, indexing
  Product,  ///< of matrices, `left` times another
  SummedProduct,
  GroupedProduct,
  Chain,
  TensorDot,
  Bilinear,
  Einsum,
  Convolution,
  Attention,
  Recurrent,
  Bag,
  Transform,  ///< Fourier's
};

/// What an operator's results are.
enum class Result : std::uint8_t {
  Computed,
  Copy,         ///< the numbers of its first argument, in other memory or another type
  View,         ///< shows, or may show, the memory of its first argument
  ViewWhenOff,  ///< a dropout: returns its argument where it draws nothing
};

/// Whether an operator draws random numbers.
enum class Draws : std::uint8_t {
  Never,
  Always,
  InTraining,  ///< unless `train` or `training` is false, or `p` is 0
  AtRate,      ///< where `dropout_p` or `dropout` is above 0
};

/// The form in which the engine computes the weight gradient of an operator apart from its input gradient, in W
/// (backends/torch/program/weights.h); `None`: together, in I.
enum class WeightPart : std::uint8_t {
  None,
  Linear,
  AddedProduct,  ///< addmm
  Product,       ///< mm, bmm, matmul
  Convolution,   ///< of one to three dimensions
  AnyConvolution,
  Embedding,
  LayerNorm,
  RmsNorm,
  GroupNorm,
  BatchNorm,
  Sum,     ///< a parameter added
  Factor,  ///< a parameter multiplied by
};

/// The type that autocast computes in: that of the inputs, its own 16 bits, or float32.
enum class Autocast : std::uint8_t { Inputs, Lower, Float32 };

/// Which running statistics an operator writes in training.
enum class Statistics : std::uint8_t { None, Batch, Instance };

/// Whether the host waits until the device has computed something, a size or a number: always, or where an index is a mask.
enum class Waits : std::uint8_t { Never, Always, ForMasks };

/// What an operator keeps from its forward for its backward, as PyTorch's derivative formulas save it (tools/autograd/derivatives.yaml).
enum class Keeps : std::uint8_t {
  Unknown,  ///< what it reads and makes is counted
  Nothing,  ///< sizes, or indices that are there anyway
  Inputs,
  Factors,  ///< of a product: a tensor that another one's gradient is multiplied by
  Result,
  InputsAndResult,
  Mask,        ///< of a dropout: a byte for each element, as on GPUs
  Places,      ///< of a pooling: its input, and the index of each maximum
  Logarithms,  ///< of a loss made of several operators: as large as its input as traced
};

/// What is known of an operator. Facts of arguments and overloads are the same for all of a name; what is not stated is the default. Each
/// operator has one row, in the source of its family; in-place variants (`relu_`) share that of the plain one.
struct Operator {
  std::string_view name;  ///< of ATen without namespace and overload, the whole target of others; empty: nothing is known
  DimensionRule dimensions = DimensionRule::Unknown;
  Work work = Work::Unknown;
  std::string_view left = "self";  ///< of a product: the argument whose last dimension is summed over
  Combination combines = Combination::None;
  Result result = Result::Computed;
  Draws draws = Draws::Never;
  WeightPart weightPart = WeightPart::None;
  std::array<std::string_view, 2> weights{};  ///< of a weight part: arguments that may be parameters
  Autocast autocast = Autocast::Inputs;
  Statistics statistics = Statistics::None;
  Waits waits = Waits::Never;
  bool reproducible = true;  ///< false: on a GPU two identical runs may differ in the last digits
  bool softmax = false;      ///< makes weights of the scores between the two products of an attention, which one kernel can compute
  Keeps keeps = Keeps::Unknown;
};

/// The row of a node's target: `torch.ops.aten.relu_.default`; one without a name where nothing is known. The reference stays valid.
[[nodiscard]] const Operator& operatorOf(const std::string& target);

/// All rows, by family.
namespace operators {
[[nodiscard]] std::span<const Operator> creation();   ///< new tensors, random numbers, sizes, assertions
[[nodiscard]] std::span<const Operator> layers();     ///< norms, dropout, pooling, resampling, padding, embeddings, quantization
[[nodiscard]] std::span<const Operator> pointwise();  ///< each element on its own
[[nodiscard]] std::span<const Operator> products();  ///< of matrices, convolutions, attention, recurrent layers, transforms, linear algebra
[[nodiscard]] std::span<const Operator> reductions();  ///< reductions, scans, order, search, losses
[[nodiscard]] std::span<const Operator> shapes();      ///< views, copies, joins, parts, indexing
/// All families one after the other.
[[nodiscard]] std::span<const std::span<const Operator>> families();
}  // namespace operators

}  // namespace pw
