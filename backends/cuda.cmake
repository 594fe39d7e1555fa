# The module that computes on GPUs: libpw_cuda.so, loaded on demand by cudaBackend(). It compiles and links without a GPU.
# Kernels by a command of their own, as CMake 3.25 does not know the C++20 of nvcc 13. Ampere, Ada and Hopper, and what comes later from the last one's
# intermediate code.
set(kernels ${CMAKE_CURRENT_BINARY_DIR}/cuda_kernels.o)
add_custom_command(
  OUTPUT ${kernels}
  COMMAND ${PW_NVCC} -std=c++20 -O2 -Xcompiler=-fPIC,-Wall,-Wextra -I${PROJECT_SOURCE_DIR}
          -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 -gencode arch=compute_90,code=[sm_90,compute_90]
          -MD -MF ${kernels}.d -MT backends/cuda_kernels.o -c ${CMAKE_CURRENT_SOURCE_DIR}/cuda_kernels.cu -o ${kernels}
  DEPENDS cuda_kernels.cu
  DEPFILE ${kernels}.d
  COMMENT "Building CUDA object cuda_kernels.o"
  VERBATIM)

add_library(pw_cuda SHARED
  cuda_api.cpp
  cuda_device.cpp
  cuda_graphs.cpp
  cuda_nccl.cpp
  cuda_partition.cpp
  nccl_channel.cpp
  nccl_ids.cpp
  ${kernels})
target_link_libraries(pw_cuda PRIVATE pw_backends TorchWheel::torch_cuda)
target_compile_definitions(pw_cuda PRIVATE NDEBUG)  # as the wheel was built
target_link_options(pw_cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
