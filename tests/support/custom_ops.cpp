// A library of custom operators for the tests: y = scale · x², with a backward of its own.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

at::Tensor square(const at::Tensor& x, double scale) { return x * x * scale; }

struct ScaledSquare : torch::autograd::Function<ScaledSquare> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double scale) {
    context->save_for_backward({x});
    context->saved_data["scale"] = scale;
    const at::AutoDispatchBelowADInplaceOrView below;
    return square(x, scale);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * context->get_saved_variables()[0] * (2 * context->saved_data["scale"].toDouble()), at::Tensor()};
  }
};

at::Tensor squareWithGradient(const at::Tensor& x, double scale) { return ScaledSquare::apply(x, scale); }

}  // namespace

TORCH_LIBRARY(pipewright_test, library) { library.def("scaled_square(Tensor x, float scale) -> Tensor"); }
TORCH_LIBRARY_IMPL(pipewright_test, CPU, library) { library.impl("scaled_square", &square); }
TORCH_LIBRARY_IMPL(pipewright_test, Autograd, library) { library.impl("scaled_square", &squareWithGradient); }
