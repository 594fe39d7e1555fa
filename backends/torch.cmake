# The module that runs models with LibTorch: libpw_torch.so, loaded on demand by torchBackend().
# Only tests may link it; linking Torch costs each start 0.4 s.
add_library(pw_torch SHARED
  torch_api.cpp
  torch_arguments.cpp
  torch_checkpoint.cpp
  torch_data.cpp
  torch_loss_count.cpp
  torch_synthetic.cpp
  torch_gloo.cpp
  torch_memory.cpp
  torch_number_watch.cpp
  torch_numbers.cpp
  torch_optimizer.cpp
  torch_parameters.cpp
  torch_pass.cpp
  torch_profiler.cpp
  torch_program.cpp
  torch_recorder.cpp
  torch_stage.cpp
  torch_state.cpp
  torch_steps.cpp
  torch_types.cpp
  torch_weight_others.cpp
  torch_weight_products.cpp
  torch_weights.cpp)
target_link_libraries(pw_torch PRIVATE pw_backends TorchWheel::torch_cpu)
# The wheel was built with NDEBUG, which decides what some of its inline functions and classes contain.
target_compile_definitions(pw_torch PRIVATE NDEBUG)
# Reading ATen's headers is three quarters of what a source here takes to compile.
target_precompile_headers(pw_torch PRIVATE <ATen/ATen.h> <torch/csrc/autograd/function.h>)
# Our static libraries are inside twice, here and in the program: keep this copy to itself.
target_link_options(pw_torch PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
