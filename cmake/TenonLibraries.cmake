# tenon::memory, tenon::lab and tenon::tensor: the layers, by what they need. Each is compiled once,
# position-independent, for its static and its shared library. The layers, lowest first, include
# only those that tests/house allows.
set(TENON_SOURCE_DIR ${PROJECT_SOURCE_DIR}/src/tenon)

# tenon_add_library(NAME LAYERS... ): objects of those layers, tenon_NAME from them, and with
# TENON_SHARED tenon_NAME_shared. tenon_use_libraries says what they are linked with.
function(tenon_add_library name)
  set(sources "")
  foreach(layer IN LISTS ARGN)
    file(GLOB_RECURSE layer_sources CONFIGURE_DEPENDS ${TENON_SOURCE_DIR}/${layer}/*.cc)
    list(APPEND sources ${layer_sources})
  endforeach()
  add_library(tenon_${name}_objects OBJECT ${sources})
  set_target_properties(tenon_${name}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # Nobody may replace a library's functions from outside, so calls among them stay as direct as in
  # a program.
  target_compile_options(tenon_${name}_objects PRIVATE -fno-semantic-interposition)
  target_link_libraries(tenon_${name}_objects PRIVATE tenon_options)
  # What most sources include: read once.
  target_precompile_headers(tenon_${name}_objects PRIVATE <algorithm> <atomic> <cstdint> <memory>
                            <mutex> <optional> <string> <vector> <fmt/format.h>)

  add_library(tenon_${name} STATIC $<TARGET_OBJECTS:tenon_${name}_objects>)
  add_library(tenon::${name} ALIAS tenon_${name})
  set_target_properties(tenon_${name} PROPERTIES EXPORT_NAME ${name})
  if(TENON_SHARED)
    add_library(tenon_${name}_shared SHARED $<TARGET_OBJECTS:tenon_${name}_objects>)
    add_library(tenon::${name}_shared ALIAS tenon_${name}_shared)
    set_target_properties(tenon_${name}_shared PROPERTIES
      OUTPUT_NAME tenon_${name} EXPORT_NAME ${name}_shared
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    # Tenon's own names are seen from outside, and none of the libraries that went into it.
    set(script ${PROJECT_SOURCE_DIR}/cmake/exported_names.map)
    set_target_properties(tenon_${name}_shared PROPERTIES LINK_DEPENDS ${script})
    target_link_options(tenon_${name}_shared PRIVATE
      LINKER:--version-script=${script} LINKER:--as-needed)
    if(NOT TENON_SANITIZE)
      target_link_options(tenon_${name}_shared PRIVATE LINKER:--no-undefined)
    endif()
    target_link_libraries(tenon_${name}_shared PRIVATE tenon_options)
  endif()
endfunction()

# tenon_use_libraries(NAME [TENON part...] [PUBLIC library...] [PRIVATE library...]). A private
# library is needed to compile the sources and to link, and never to compile what includes them.
function(tenon_use_libraries name)
  cmake_parse_arguments(use "" "" "TENON;PUBLIC;PRIVATE" ${ARGN})
  set(include $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include>)
  target_include_directories(tenon_${name}_objects PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tenon_${name}_objects PUBLIC ${use_PUBLIC} PRIVATE ${use_PRIVATE})
  set(kinds "")
  if(TENON_SHARED)
    set(kinds _shared)
  endif()
  foreach(kind IN LISTS kinds ITEMS "")
    target_include_directories(tenon_${name}${kind} PUBLIC ${include})
    target_compile_features(tenon_${name}${kind} PUBLIC cxx_std_20)
    foreach(part IN LISTS use_TENON)
      target_link_libraries(tenon_${name}${kind} PUBLIC tenon_${part}${kind})
    endforeach()
    target_link_libraries(tenon_${name}${kind} PUBLIC ${use_PUBLIC} PRIVATE ${use_PRIVATE})
  endforeach()
endfunction()

tenon_add_library(memory base device heap memory)
tenon_use_libraries(memory PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS}
                    PRIVATE $<$<BOOL:${TENON_HAS_LIBBACKTRACE}>:backtrace>)
set_source_files_properties(${TENON_SOURCE_DIR}/memory/adaptors/code_place.cc PROPERTIES
  COMPILE_DEFINITIONS TENON_HAS_LIBBACKTRACE=$<BOOL:${TENON_HAS_LIBBACKTRACE}>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Two counters side by side, updated as one vector here and one by one there: a processor cannot
  # forward two small stores to one large load, and waits for the cache.
  target_compile_options(tenon_memory_objects PRIVATE -fno-tree-slp-vectorize)
endif()

if("lab" IN_LIST TENON_COMPONENTS)
  tenon_add_library(lab trace lab)
  tenon_use_libraries(lab TENON memory PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE PkgConfig::zstd PkgConfig::zlib
                              $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  # TENON_RECORD works in every program, also in those that name nothing of the recorder.
  target_link_options(tenon_lab INTERFACE LINKER:--undefined=tenon_recording_from_environment)
endif()

if("tensor" IN_LIST TENON_COMPONENTS)
  tenon_add_library(tensor tensor ops autograd nn)
  tenon_use_libraries(tensor TENON memory PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE PkgConfig::zlib PkgConfig::hwy PkgConfig::openblas
                              $<BUILD_INTERFACE:${TENON_DNNL}> $<INSTALL_INTERFACE:dnnl>
                              $<BUILD_INTERFACE:${OpenMP_gomp_LIBRARY}> $<INSTALL_INTERFACE:gomp>
                              $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  set(kernels ${TENON_SOURCE_DIR}/ops/kernels/cpu)
  # Square roots that need not set errno can be vectorised, and so can rounding that may raise flags.
  set_source_files_properties(${kernels}/unary_blocks.cc ${kernels}/binary_blocks.cc PROPERTIES
    COMPILE_OPTIONS "-fno-math-errno;-fno-trapping-math" SKIP_PRECOMPILE_HEADERS ON)
  # Square roots that need not set errno can be vectorised. Updates have the same bits however their
  # elements are cut, so a product and a sum are two roundings everywhere.
  set_source_files_properties(${TENON_SOURCE_DIR}/nn/optimizer_blocks.cc PROPERTIES
    COMPILE_OPTIONS "-fno-math-errno;-ffp-contract=off" SKIP_PRECOMPILE_HEADERS ON)
endif()

# All that is built, for what does not choose.
add_library(tenon INTERFACE)
foreach(part memory lab tensor)
  if(TARGET tenon_${part})
    target_link_libraries(tenon INTERFACE tenon_${part})
  endif()
endforeach()
add_library(tenon::tenon ALIAS tenon)
