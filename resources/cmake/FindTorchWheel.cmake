# LibTorch out of the PyPI wheel, on CPUs; needs no CUDA toolkit (the wheel's own TorchConfig.cmake wants one).
#
#   find_package(TorchWheel 2.11.0 REQUIRED)     target TorchWheel::torch_cpu; with a CUDA wheel also TorchWheel::torch_cuda
#
# Looks in PW_TORCH_DIR (the folder that holds lib/ and include/), then in .deps/venv, then asks python3 where its torch is.
# Linking libtorch.so would pull in all of CUDA: the target is libtorch_cpu and libc10 only. Programs and libraries that
# link it get run paths to torch/lib and to the NVIDIA folders that libtorch_cpu needs (CUDA runtime, CUPTI).

set(PW_TORCH_DIR "" CACHE PATH "Folder of the torch package (it holds lib/ and include/); empty: look for it")

set(_torch_dir "${PW_TORCH_DIR}")
if(NOT _torch_dir)
  file(GLOB _torch_wheels LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
  list(POP_BACK _torch_wheels _torch_dir)
endif()
if(NOT _torch_dir)
  set(_torch_python python3)
  if(Python_EXECUTABLE)  # of pip's build
    set(_torch_python "${Python_EXECUTABLE}")
  endif()
  execute_process(
    COMMAND ${_torch_python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

set(_torch_cure "Run ./dev setup, give the torch package's folder with -DPW_TORCH_DIR=..., or build without it with -DPW_TORCH=OFF.")
set(_torch_problem "")
set(TorchWheel_VERSION "")
if(NOT _torch_dir)
  set(_torch_problem "No PyTorch wheel found. ${_torch_cure}")
elseif(NOT EXISTS "${_torch_dir}/version.py")
  set(_torch_problem "${_torch_dir} is not the torch package's folder: it has no version.py. ${_torch_cure}")
else()
  file(STRINGS "${_torch_dir}/version.py" _torch_version REGEX "^__version__")
  string(REGEX REPLACE ".*['\"]([^'\"]+)['\"].*" "\\1" TorchWheel_VERSION "${_torch_version}")
  string(REGEX REPLACE "[^0-9.].*" "" _torch_release "${TorchWheel_VERSION}")
  if(TorchWheel_FIND_VERSION AND NOT _torch_release STREQUAL TorchWheel_FIND_VERSION)
    set(_torch_problem
      "${_torch_dir} is torch ${TorchWheel_VERSION}, but Pipewright is written against ${TorchWheel_FIND_VERSION}. ${_torch_cure}")
  endif()
  foreach(_file lib/libc10.so lib/libtorch_cpu.so include/ATen/ATen.h include/torch/csrc/api/include/torch/torch.h)
    if(NOT _torch_problem AND NOT EXISTS "${_torch_dir}/${_file}")
      set(_torch_problem "The torch package in ${_torch_dir} has no ${_file}. ${_torch_cure}")
    endif()
  endforeach()
endif()

# c10d's Gloo header includes Gloo's own, which the wheel lacks; the code itself is inside libtorch_cpu.
find_path(GLOO_INCLUDE_DIR gloo/algorithm.h)
mark_as_advanced(GLOO_INCLUDE_DIR)
if(NOT _torch_problem AND NOT GLOO_INCLUDE_DIR)
  set(_torch_problem "Gloo's headers are missing. Install the Debian package libgloo-dev (./dev setup does).")
endif()

if(_torch_problem)
  set(TorchWheel_FOUND FALSE)
  if(TorchWheel_FIND_REQUIRED)
    message(FATAL_ERROR "${_torch_problem}")
  elseif(NOT TorchWheel_FIND_QUIETLY)
    message(STATUS "${_torch_problem}")
  endif()
  return()
endif()

# libtorch_cpu's NEEDED entries outside its own folder: libcudart and libcupti, in NVIDIA packages beside torch.
# A CPU-only wheel needs none.
set(_torch_run_paths "${_torch_dir}/lib")
file(GLOB _nvidia_libraries
  "${_torch_dir}/../nvidia/*/lib/libcudart.so.*" "${_torch_dir}/../nvidia/*/lib/libcupti.so.*")
foreach(_library IN LISTS _nvidia_libraries)
  get_filename_component(_folder "${_library}" DIRECTORY)
  get_filename_component(_folder "${_folder}" REALPATH)
  list(APPEND _torch_run_paths "${_folder}")
endforeach()
list(REMOVE_DUPLICATES _torch_run_paths)

set(TorchWheel_LIBRARY_DIR "${_torch_dir}/lib")
if(NOT TARGET TorchWheel::torch_cpu)
  add_library(TorchWheel::c10 SHARED IMPORTED)
  set_target_properties(TorchWheel::c10 PROPERTIES IMPORTED_LOCATION "${_torch_dir}/lib/libc10.so")
  add_library(TorchWheel::torch_cpu SHARED IMPORTED)
  set_target_properties(TorchWheel::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${_torch_dir}/lib/libtorch_cpu.so"
    # Imported targets' folders are system includes: no warnings of ours in there.
    INTERFACE_INCLUDE_DIRECTORIES "${_torch_dir}/include;${_torch_dir}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC"
    INTERFACE_LINK_LIBRARIES TorchWheel::c10)
  if(NOT GLOO_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    set_property(TARGET TorchWheel::torch_cpu APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${GLOO_INCLUDE_DIR}")
  endif()
  foreach(_folder IN LISTS _torch_run_paths)
    set_property(TARGET TorchWheel::torch_cpu APPEND PROPERTY
      INTERFACE_LINK_OPTIONS "LINKER:-rpath,${_folder}" "LINKER:-rpath-link,${_folder}")
  endforeach()
endif()

# GPUs: the wheel's own CUDA runtime, cuBLAS and NCCL, whose headers and libraries come in NVIDIA packages beside torch.
file(GLOB _cuda_folders LIST_DIRECTORIES true "${_torch_dir}/../nvidia/cu[0-9]*")
set(_cuda_libraries "")
foreach(_name libcudart libcublas libnccl)
  file(GLOB _found "${_torch_dir}/../nvidia/*/lib/${_name}.so.[0-9]*")
  list(APPEND _cuda_libraries ${_found})
endforeach()
list(LENGTH _cuda_libraries _cuda_library_count)
if(NOT TARGET TorchWheel::torch_cuda AND EXISTS "${_torch_dir}/lib/libtorch_cuda.so" AND _cuda_folders AND _cuda_library_count EQUAL 3)
  list(GET _cuda_folders 0 _cuda_folder)
  add_library(TorchWheel::torch_cuda SHARED IMPORTED)
  set_target_properties(TorchWheel::torch_cuda PROPERTIES
    IMPORTED_LOCATION "${_torch_dir}/lib/libtorch_cuda.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_cuda_folder}/include;${_torch_dir}/../nvidia/nccl/include"
    INTERFACE_LINK_LIBRARIES "TorchWheel::torch_cpu;${_torch_dir}/lib/libc10_cuda.so;${_cuda_libraries}")
  file(GLOB _cuda_run_paths LIST_DIRECTORIES true "${_torch_dir}/../nvidia/*/lib")
  foreach(_folder IN LISTS _cuda_run_paths)
    get_filename_component(_folder "${_folder}" REALPATH)
    set_property(TARGET TorchWheel::torch_cuda APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath,${_folder}" "LINKER:-rpath-link,${_folder}")
  endforeach()
endif()

set(TorchWheel_FOUND TRUE)
message(STATUS "Torch: ${TorchWheel_VERSION} in ${_torch_dir}")
