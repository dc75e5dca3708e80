# TENON_COMPONENTS names what is built; each needs its own dependencies only:
#   memory   allocators, heaps, devices        fmt
#   lab      recordings and answers to them    fmt, zstd, zlib, nlohmann-json
#   tensor   tensors, operators, gradients     fmt, zlib, nlohmann-json, Highway, OpenBLAS, oneDNN
#   command  the program `tenon`               lab's, and CLI11; with tensor, also its training part
#   torch    PyTorch's allocator on a GPU      lab's
#   python   the package `tenon` for Python    lab's, CLI11 and nanobind; only where it is asked for
set(tenon_all memory lab tensor command torch)
set(tenon_known ${tenon_all} python)
if(DEFINED CACHE{TENON_COMPONENTS} OR DEFINED TENON_COMPONENTS OR NOT PROJECT_IS_TOP_LEVEL)
  set(tenon_whole OFF)
else()
  set(tenon_whole ON)
endif()
if(PROJECT_IS_TOP_LEVEL)
  set(tenon_default ${tenon_all})
else()
  set(tenon_default memory)  # a project that uses Tenon names what else it wants
endif()
set(TENON_COMPONENTS ${tenon_default} CACHE STRING "Parts to build: ${tenon_known}")
foreach(component IN LISTS TENON_COMPONENTS)
  if(NOT component IN_LIST tenon_known)
    message(FATAL_ERROR "TENON_COMPONENTS: \"${component}\" is no component; there are ${tenon_known}")
  endif()
endforeach()
# What a component stands on is built with it.
if("command" IN_LIST TENON_COMPONENTS OR "torch" IN_LIST TENON_COMPONENTS OR
   "python" IN_LIST TENON_COMPONENTS)
  list(APPEND TENON_COMPONENTS lab)
endif()
list(APPEND TENON_COMPONENTS memory)
list(REMOVE_DUPLICATES TENON_COMPONENTS)

# Tests need every component.
foreach(component IN LISTS tenon_all)
  if(NOT component IN_LIST TENON_COMPONENTS)
    set(tenon_whole OFF)
  endif()
endforeach()
option(TENON_BUILD_TESTS "Build the tests (all components)" ${tenon_whole})
option(TENON_BUILD_BENCH "Build the benchmarks (all components)" ${tenon_whole})
option(TENON_SHARED "Also build shared libraries" ${PROJECT_IS_TOP_LEVEL})
option(TENON_INSTALL "Install rules" ${PROJECT_IS_TOP_LEVEL})
set(TENON_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
if("lab" IN_LIST TENON_COMPONENTS OR "tensor" IN_LIST TENON_COMPONENTS)
  find_package(nlohmann_json REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
endif()
if("lab" IN_LIST TENON_COMPONENTS)
  pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
endif()
if("tensor" IN_LIST TENON_COMPONENTS)
  pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
  pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)
  # Its own CMake file asks for OpenCL, which is not used here.
  find_library(TENON_DNNL dnnl REQUIRED)
  find_path(TENON_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
  find_package(OpenMP REQUIRED COMPONENTS CXX)  # oneDNN's threads
endif()
if("command" IN_LIST TENON_COMPONENTS OR "python" IN_LIST TENON_COMPONENTS)
  find_package(CLI11 REQUIRED)
endif()

# GCC's own reader of debug information: file and line in call stacks, where it is there.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES backtrace)
check_cxx_source_compiles("#include <backtrace.h>
  int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr; }"
  TENON_HAS_LIBBACKTRACE)
unset(CMAKE_REQUIRED_LIBRARIES)
