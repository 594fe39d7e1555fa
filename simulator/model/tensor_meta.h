#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// Element type of a tensor. The values are the codes of torch's archives (not those of LibTorch). Float8 (torch's float8_e4m3fn) is that
/// of layer tables only: archives with it are refused.
enum class DType : std::uint8_t {
  Unknown = 0,
  UInt8 = 1,
  Int8 = 2,
  Int16 = 3,
  Int32 = 4,
  Int64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  ComplexHalf = 9,
  ComplexFloat = 10,
  ComplexDouble = 11,
  Bool = 12,
  BFloat16 = 13,
  Float8 = 29,
};

[[nodiscard]] Bytes bytesPerElement(DType dtype);
/// The same number for arithmetic with elements and buffers, whether they are counted by `std::int64_t` or `std::size_t`.
[[nodiscard]] unsigned widthOf(DType dtype);
/// True for the floating and complex types: only these carry gradients.
[[nodiscard]] bool isDifferentiable(DType dtype);
[[nodiscard]] std::string_view nameOf(DType dtype);

/// An integer known at export (`expression` empty) or symbolic: torch's sympy text such as
/// `Mul(Integer(8), Symbol('s77', positive=True, integer=True))`, with the value it had at export.
struct SymbolicInt {
  std::int64_t hint = 0;
  std::string expression;

  bool operator==(const SymbolicInt&) const = default;
};

/// Values of the symbols, by symbol name: `{"s77": 2}`.
using Bindings = std::map<std::string, std::int64_t>;

/// The integer under these bindings. Knows Symbol, Integer, Add, Mul, Pow (non-negative), FloorDiv, CeilDiv, Mod, Max,
/// Min, comparisons (1 or 0), and plain integers. Throws Error naming the expression for anything else, an unbound symbol (a data-dependent
/// size, for example), division by zero or overflow. Literals cost nothing.
[[nodiscard]] std::int64_t evaluate(const SymbolicInt& number, const Bindings& bindings);

struct TensorMeta {
  DType dtype = DType::Unknown;
  std::vector<SymbolicInt> sizes;
  bool requiresGrad = false;
  /// Of a tensor that lies permuted in memory, as the result of a transpose does: its dimensions, the one with the largest stride first. Of
  /// one with gaps or repeated elements: as a copy without them lies (`empty_like`). Empty: as they are numbered.
  std::vector<std::int64_t> memoryOrder;

  bool operator==(const TensorMeta&) const = default;
};

/// Whether a parameter with this tensor gets a gradient and is updated.
[[nodiscard]] inline bool isTrained(const TensorMeta& parameter) { return parameter.requiresGrad && isDifferentiable(parameter.dtype); }

[[nodiscard]] std::vector<std::int64_t> shapeOf(const TensorMeta& meta, const Bindings& bindings);
[[nodiscard]] Bytes bytesOf(const TensorMeta& meta, const Bindings& bindings);
/// The `memoryOrder` of a tensor with these sizes and strides, of which there are as many. Strides of dimensions of size 1 say nothing.
[[nodiscard]] std::vector<std::int64_t> memoryOrderOf(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides);

}  // namespace pw
