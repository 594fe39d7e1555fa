# Python with its headers, and pybind11, for the extension module of the package.
#
#   find_package(PythonBinding)      Python_EXECUTABLE, pybind11_add_module
#
# Takes the Python of .deps/venv, unless Python_EXECUTABLE says another (as pip's build does), and the pybind11 that is installed there.
if(NOT Python_EXECUTABLE AND EXISTS "${PROJECT_SOURCE_DIR}/.deps/venv/bin/python")
  set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.deps/venv/bin/python")
endif()
set(_binding_cure "Run ./dev setup, or build without it with -DPW_PYTHON=OFF.")
set(_binding_problem "")
find_package(Python 3.11 COMPONENTS Interpreter Development.Module QUIET)
if(NOT Python_FOUND)
  set(_binding_problem "no Python 3.11 or newer with its headers (Debian: python3-dev). ${_binding_cure}")
else()
  if(NOT pybind11_DIR)
    execute_process(COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
      OUTPUT_VARIABLE _binding_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_package(pybind11 3.0 CONFIG QUIET HINTS "${_binding_dir}")
  if(NOT pybind11_FOUND)
    set(_binding_problem "${Python_EXECUTABLE} has no pybind11. ${_binding_cure}")
  endif()
endif()

if(_binding_problem)
  set(PythonBinding_FOUND FALSE)
  if(PythonBinding_FIND_REQUIRED)
    message(FATAL_ERROR "The Python package cannot be built: ${_binding_problem}")
  endif()
  message(STATUS "Python package: off, ${_binding_problem}")
  return()
endif()
set(PythonBinding_FOUND TRUE)
message(STATUS "Python package: ${Python_EXECUTABLE}, pybind11 ${pybind11_VERSION}")
