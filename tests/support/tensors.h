#pragma once

// Tensors for tests of distributed autograd: LibTorch's (`tensors.cpp`), or a few lines of plain numbers (`number_tensors.cpp`), with which
// the same tests run where LibTorch is not there or not instrumented.

#include <cstdint>
#include <string>
#include <vector>

#include "backends/torch/autograd/functions.h"

namespace pw::test {

struct Tensor {
  TensorHandle handle;
};

/// 3 × 3 doubles in (-1, 1), that need a gradient.
[[nodiscard]] Tensor leaf(std::uint64_t seed);
[[nodiscard]] Tensor constant(std::uint64_t seed);  ///< likewise, without
[[nodiscard]] Tensor integers();                    ///< 0, 1, 2
[[nodiscard]] Tensor operator+(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor operator*(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor tanh(const Tensor& a);
[[nodiscard]] Tensor scaled(const Tensor& a, double factor);
[[nodiscard]] Tensor transposed(const Tensor& a);  ///< a view that is not contiguous
[[nodiscard]] Tensor sum(const Tensor& a);
[[nodiscard]] Tensor onlyFirstOf(const Tensor& a, const Tensor& b);  ///< a + 0 · b without b in its graph
/// The identity, whose backward throws.
[[nodiscard]] Tensor brokenBackward(const Tensor& a);

/// What these tensors do: the LibTorch module's table, or that of the plain numbers (which has no optimizers).
[[nodiscard]] const AutogradFunctions& testFunctions();

[[nodiscard]] double item(const Tensor& a);
[[nodiscard]] std::vector<double> numbers(const TensorHandle& a);  ///< all elements; none of null
[[nodiscard]] bool needsGradient(const Tensor& a);
[[nodiscard]] bool hasGradFn(const Tensor& a);
/// A backward in one process, and what it left in `.grad` (none: empty).
void localBackward(const std::vector<Tensor>& roots);
[[nodiscard]] std::vector<double> gradOf(const Tensor& a);

}  // namespace pw::test
