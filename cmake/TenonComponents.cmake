# TENON_COMPONENTS names what is built; each needs its own dependencies only:
#   memory   allocators, heaps, devices        fmt
#   lab      recordings and answers to them    fmt, zstd, zlib, nlohmann-json
#   tensor   tensors, operators, gradients     fmt, zlib, nlohmann-json, Highway, OpenBLAS, oneDNN
#   command  the program `tenon`               lab's, and CLI11; with tensor, also its training part
#   torch    PyTorch's allocator on a GPU      lab's
#   preload  the host's malloc                 lab's
#   c        the C interface                   lab's
#   python   the package `tenon` for Python    lab's, CLI11 and nanobind; only where it is asked for;
#                                              with tensor, also tenon.Tensor
set(tenon_all memory lab tensor command torch preload c)
set(tenon_known ${tenon_all} python)
if(NOT DEFINED TENON_COMPONENTS AND PROJECT_IS_TOP_LEVEL)
  set(TENON_COMPONENTS ${tenon_all})
elseif(NOT DEFINED TENON_COMPONENTS)
  set(TENON_COMPONENTS memory)  # a project that uses Tenon names what else it wants
endif()
foreach(component IN LISTS TENON_COMPONENTS)
  if(NOT component IN_LIST tenon_known)
    message(FATAL_ERROR "TENON_COMPONENTS: \"${component}\" is no component; there are ${tenon_known}")
  endif()
endforeach()
# What a component stands on is built with it.
foreach(component command torch preload c python)
  if(component IN_LIST TENON_COMPONENTS)
    list(APPEND TENON_COMPONENTS lab)
  endif()
endforeach()
# A wheel has tensors where their libraries are here, unless it is told.
set(TENON_PYTHON_TENSOR AUTO CACHE STRING "tenon.Tensor in the wheel: ON, OFF or AUTO")
if(SKBUILD AND TENON_PYTHON_TENSOR STREQUAL "AUTO")
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(tenon_found QUIET libhwy openblas)
  find_library(TENON_DNNL dnnl)
  find_path(TENON_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
  if(tenon_found_FOUND AND TENON_DNNL AND TENON_DNNL_INCLUDE)
    list(APPEND TENON_COMPONENTS tensor)
  else()
    message(STATUS "Without tenon.Tensor: Highway, OpenBLAS or oneDNN is not here")
  endif()
elseif(SKBUILD AND TENON_PYTHON_TENSOR)
  list(APPEND TENON_COMPONENTS tensor)
endif()
list(APPEND TENON_COMPONENTS memory)
list(REMOVE_DUPLICATES TENON_COMPONENTS)

# Tests need every component.
set(tenon_whole ${PROJECT_IS_TOP_LEVEL})
foreach(component IN LISTS tenon_all)
  if(NOT component IN_LIST TENON_COMPONENTS)
    set(tenon_whole OFF)
  endif()
endforeach()
option(TENON_BUILD_TESTS "Build the tests (all components)" ${tenon_whole})
option(TENON_BUILD_BENCH "Build the benchmarks (all components)" ${tenon_whole})
option(TENON_SHARED "Also build shared libraries" ${PROJECT_IS_TOP_LEVEL})
option(TENON_UNITY "Compile ten sources at a time: headers are read once for them" ON)
option(TENON_INSTALL "Install rules" ${PROJECT_IS_TOP_LEVEL})
option(TENON_MPI "Let tenon train and tenon fleet run on several processes, over MPI" OFF)
set(TENON_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")

find_package(Threads REQUIRED)
if(NOT TARGET fmt::fmt)  # a project that Tenon is part of may bring its own
  find_package(fmt REQUIRED)
endif()
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
endif()
if("command" IN_LIST TENON_COMPONENTS OR "python" IN_LIST TENON_COMPONENTS)
  find_package(CLI11 REQUIRED)
endif()

include(CheckCXXSourceCompiles)
if("tensor" IN_LIST TENON_COMPONENTS)
  # oneDNN's threads are those of GCC's OpenMP library, under every compiler.
  set(CMAKE_REQUIRED_LIBRARIES gomp)
  check_cxx_source_compiles("extern \"C\" int omp_get_max_threads();
    int main() { return omp_get_max_threads() == 0; }" TENON_HAS_GOMP)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT TENON_HAS_GOMP)
    message(FATAL_ERROR "the component tensor needs GCC's OpenMP library, libgomp (in Debian: g++)")
  endif()
endif()

# GCC's own reader of debug information: file and line in call stacks, where it is there.
set(CMAKE_REQUIRED_LIBRARIES backtrace)
check_cxx_source_compiles("#include <backtrace.h>
  int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr; }"
  TENON_HAS_LIBBACKTRACE)
unset(CMAKE_REQUIRED_LIBRARIES)

if(TENON_MPI)
  # MPI_CXX_COMPILER names the implementation: mpicxx.openmpi, mpicxx.mpich. Its launcher stands
  # beside it.
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    message(FATAL_ERROR "TENON_MPI needs an MPI that compiles C++ (Debian: libopenmpi-dev and "
                        "openmpi-bin, or libmpich-dev and mpich)")
  endif()
  get_filename_component(launcher "${MPI_CXX_COMPILER}" NAME)
  string(REPLACE mpicxx mpirun launcher ${launcher})
  get_filename_component(folder "${MPI_CXX_COMPILER}" DIRECTORY)
  find_program(TENON_MPIRUN NAMES ${launcher} mpirun HINTS ${folder} REQUIRED)
  mark_as_advanced(TENON_MPIRUN)
endif()
