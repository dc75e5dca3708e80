# tenon::memory, tenon::lab and tenon::tensor: the layers, by what they need. Each is compiled once,
# position-independent, for its static and its shared library. The layers, lowest first, include
# only those that tests/house allows.
set(TENON_SOURCE_DIR ${PROJECT_SOURCE_DIR}/src/tenon)

# Relocations without a name take a bit each where the linker writes that form so that the loader
# reads it. Only a program that runs shows it: mold leaves out the version that the loader asks for.
if(NOT CMAKE_CROSSCOMPILING)
  include(CheckCXXSourceRuns)
  set(CMAKE_REQUIRED_LINK_OPTIONS LINKER:-z,pack-relative-relocs LINKER:--fatal-warnings)
  check_cxx_source_runs("#include <features.h>
    #if !__GLIBC_PREREQ(2, 36)
    #error the loader does not read them
    #endif
    int main() {}" TENON_HAS_RELATIVE_RELOCATIONS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
endif()

# tenon_unite(TARGET ROOT SOURCES...): compiles these sources of the target ten at a time, those of
# each folder of ROOT together, since headers take half of the time to compile one. So names in a
# folder differ. Not for kernels, which take longer than their headers.
function(tenon_unite target root)
  if(NOT TENON_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${root})
    string(REGEX MATCH "^[^/]+" folder "${path}")
    if(NOT path MATCHES /kernels/)
      list(LENGTH united_${folder} before)
      math(EXPR group "${before} / 10")
      list(APPEND united_${folder} ${source})
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
    endif()
  endforeach()
endfunction()

# tenon_add_objects(TARGET SOURCES...): compiled position-independent, for a static and a shared
# library.
function(tenon_add_objects target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # Nobody may replace a library's functions from outside, so calls among them stay as direct as in
  # a program.
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE tenon_options)
  # What most sources include: read once.
  target_precompile_headers(${target} PRIVATE <algorithm> <atomic> <chrono> <condition_variable>
                            <cstdint> <functional> <map> <memory> <mutex> <optional> <string>
                            <unordered_map> <vector> <fmt/format.h>)
endfunction()

# tenon_add_library(NAME LAYERS... ): objects of those layers, tenon_NAME from them, and with
# TENON_SHARED tenon_NAME_shared. tenon_use_libraries says what they are linked with.
#
# tenon_NAME_small names groups of sources, and tenon_NAME_small_GROUP their files: what a program
# runs seldom, or waits for in a driver or the system. It is compiled for size, a group at a time.
function(tenon_add_library name)
  set(sources "")
  foreach(layer IN LISTS ARGN)
    file(GLOB_RECURSE layer_sources CONFIGURE_DEPENDS ${TENON_SOURCE_DIR}/${layer}/*.cc)
    list(APPEND sources ${layer_sources})
  endforeach()
  if(NOT TENON_VULKAN_INCLUDE)
    list(FILTER sources EXCLUDE REGEX /vulkan)
  endif()
  if(NOT TENON_GLSLC)
    list(FILTER sources EXCLUDE REGEX /kernels/vulkan/)
  endif()
  set(small "")
  foreach(group IN LISTS tenon_${name}_small)
    list(TRANSFORM tenon_${name}_small_${group} PREPEND ${TENON_SOURCE_DIR}/)
    list(TRANSFORM tenon_${name}_small_${group} APPEND .cc)
    set_source_files_properties(${tenon_${name}_small_${group}} PROPERTIES UNITY_GROUP ${group})
    list(APPEND small ${tenon_${name}_small_${group}})
  endforeach()
  list(REMOVE_ITEM sources ${small})
  set(objects tenon_${name}_objects)
  tenon_add_objects(tenon_${name}_objects ${sources})
  # A program links what it needs of memory source by source, of the others layer by layer.
  if(NOT name STREQUAL "memory")
    tenon_unite(tenon_${name}_objects ${TENON_SOURCE_DIR} ${sources})
  endif()
  if(small)
    list(APPEND objects tenon_${name}_small_objects)
    tenon_add_objects(tenon_${name}_small_objects ${small})
    target_compile_options(tenon_${name}_small_objects PRIVATE $<$<CONFIG:Release>:-Os>)
    set_target_properties(tenon_${name}_small_objects PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  set(tenon_${name}_object_targets ${objects} PARENT_SCOPE)
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")

  add_library(tenon_${name} STATIC ${objects})
  add_library(tenon::${name} ALIAS tenon_${name})
  set_target_properties(tenon_${name} PROPERTIES EXPORT_NAME ${name})
  if(TENON_SHARED)
    add_library(tenon_${name}_shared SHARED ${objects})
    add_library(tenon::${name}_shared ALIAS tenon_${name}_shared)
    set_target_properties(tenon_${name}_shared PROPERTIES
      OUTPUT_NAME tenon_${name} EXPORT_NAME ${name}_shared
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    # Tenon's own names are seen from outside, and none of the libraries that went into it.
    set(script ${PROJECT_SOURCE_DIR}/cmake/exported_names_${name}.map)
    if(NOT EXISTS ${script})
      set(script ${PROJECT_SOURCE_DIR}/cmake/exported_names.map)
    endif()
    set_target_properties(tenon_${name}_shared PROPERTIES LINK_DEPENDS ${script})
    target_link_options(tenon_${name}_shared PRIVATE
      LINKER:--version-script=${script} LINKER:--as-needed LINKER:-Bsymbolic-functions)
    if(TENON_HAS_RELATIVE_RELOCATIONS)
      target_link_options(tenon_${name}_shared PRIVATE LINKER:-z,pack-relative-relocs)
    endif()
    if(NOT TENON_SANITIZE)
      target_link_options(tenon_${name}_shared PRIVATE LINKER:--no-undefined)
    endif()
    target_link_libraries(tenon_${name}_shared PRIVATE tenon_options)
  endif()
endfunction()

# tenon_add_shader(FILE SOURCE [VARIANT flags...]): the GLSL program SOURCE.comp beside FILE, a
# source of tenon::tensor, as SPIR-V in numbers that FILE includes as "SOURCE.spv.inc"; compiled with
# flags, as "SOURCE_VARIANT.spv.inc". Drivers inline and optimise, so glslc does neither without -Os
# (for loops to unroll, which not every driver does; -O gives the same and takes three times as
# long): that keeps the numbers few.
function(tenon_add_shader file shader)
  list(POP_FRONT ARGN variant)
  string(JOIN _ name ${shader} ${variant})
  cmake_path(REPLACE_FILENAME file ${shader}.comp OUTPUT_VARIABLE source)
  set(source ${TENON_SOURCE_DIR}/${source})
  set(numbers ${PROJECT_BINARY_DIR}/shaders/${name}.spv.inc)
  set(shared ${TENON_SOURCE_DIR}/tensor/kernels/vulkan)
  add_custom_command(OUTPUT ${numbers} DEPENDS ${source} ${shared}/numbers.glsl
                     ${shared}/sine.glsl ${TENON_SOURCE_DIR}/ops/kernels/vulkan/places.glsl
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/shaders
    COMMAND ${TENON_GLSLC} --target-env=vulkan1.2 -mfmt=c -I ${shared} ${ARGN} ${source}
            -o ${numbers})
  set_property(SOURCE ${TENON_SOURCE_DIR}/${file} APPEND PROPERTY OBJECT_DEPENDS ${numbers})
endfunction()

# tenon_use_libraries(NAME [TENON part...] [PUBLIC library...] [PRIVATE library...]). A private
# library is needed to compile the sources and to link, and never to compile what includes them.
function(tenon_use_libraries name)
  cmake_parse_arguments(use "" "" "TENON;PUBLIC;PRIVATE" ${ARGN})
  set(include $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include>)
  foreach(objects IN LISTS tenon_${name}_object_targets)
    target_link_libraries(${objects} PRIVATE ${use_PUBLIC} ${use_PRIVATE})
  endforeach()
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

# Vulkan's headers, to compile with; its loader is found at run time.
find_path(TENON_VULKAN_INCLUDE vulkan/vulkan_core.h)
find_program(TENON_GLSLC glslc)
mark_as_advanced(TENON_VULKAN_INCLUDE TENON_GLSLC)
if(NOT TENON_VULKAN_INCLUDE)
  message(STATUS "Tenon: no Vulkan headers (Debian: libvulkan-dev), so there are no Vulkan devices")
elseif(NOT TENON_GLSLC)
  message(STATUS "Tenon: no glslc (Debian: glslc), so the host computes for Vulkan devices")
endif()

set(tenon_memory_small base device cuda guards names growth host pages seldom)
set(tenon_memory_small_base base/byte_size base/environment base/error base/file_writer
    base/parse_real base/pointer_map base/printable base/read_limit base/write_target)
set(tenon_memory_small_device device/address_table device/backend device/device device/devices
    device/driver_ledger device/host/machine_memory device/sim/address_space device/sim/cost_model
    device/sim/sim_backend device/stream_table)
set(tenon_memory_small_cuda device/cuda/cuda_backend device/cuda/cuda_driver device/cuda/cuda_sharing
    device/cuda/cuda_streams device/cuda/stamp_kernels memory/gpu/cuda_allocator)
set(tenon_memory_small_guards base/call_stack base/code_place memory/adaptors/adaptor
    memory/adaptors/guard_adaptor memory/adaptors/guard_report memory/adaptors/tracking_adaptor
    memory/adaptors/page_guard_allocator)
set(tenon_memory_small_names memory/gpu/pytorch_rules memory/compat/places memory/policies
    memory/registry memory/stats)
set(tenon_memory_small_seldom device/shortage device/sim/order_checker
    device/sleeping/sleeping_backend memory/gpu/pinned_allocator
    memory/gpu/private_pool memory/growable/growable_buffer memory/growable/page_pool
    memory/machine_pressure memory/reclaim memory/unified/callbacks memory/unified/unified_interface)
set(tenon_memory_small_growth device/host/host_backend heap/plan memory/allocator
    memory/device_allocator memory/device_buffer memory/gpu/caching_allocator
    memory/gpu/expandable_allocator memory/gpu/stream_ordered_allocator memory/host/decay_thread
    memory/host/host_interface memory/front/extent_heap memory/front/segment_front
    memory/front/stream_front memory/placement/chunked_allocator memory/placement/plan_allocator
    memory/standard_memory memory/system/system_allocator memory/unified/heap_supply
    memory/unified/unified_release memory/watermark)
set(tenon_memory_small_host device/os/os_memory device/sleeping/sleep_listener
    memory/host/cpu_allocator memory/host/heap_directory memory/host/host_thread memory/observer)
set(tenon_memory_small_pages memory/gpu/stitched_allocator memory/gpu/stitched_pages
    memory/gpu/window)
if(TENON_VULKAN_INCLUDE)
  list(APPEND tenon_memory_small vulkan)
  set(tenon_memory_small_vulkan device/vulkan/vulkan_backend device/vulkan/vulkan_contents
      device/vulkan/vulkan_device device/vulkan/vulkan_driver device/vulkan/vulkan_kernels
      device/vulkan/vulkan_streams device/vulkan/vulkan_texels
      memory/unified/vulkan_allocator)
endif()
tenon_add_library(memory base device heap memory)
tenon_use_libraries(memory PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS}
                    PRIVATE $<$<BOOL:${TENON_HAS_LIBBACKTRACE}>:backtrace>)
foreach(objects IN LISTS tenon_memory_object_targets)
  target_compile_definitions(${objects} PRIVATE
    TENON_HAS_VULKAN=$<BOOL:${TENON_VULKAN_INCLUDE}>)
endforeach()
target_compile_definitions(tenon_memory_small_objects PRIVATE
  TENON_HAS_LIBBACKTRACE=$<BOOL:${TENON_HAS_LIBBACKTRACE}>)
set_target_properties(tenon_memory_objects tenon_memory_small_objects PROPERTIES
  VISIBILITY_INLINES_HIDDEN ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Two counters side by side, updated as one vector here and one by one there: a processor cannot
  # forward two small stores to one large load, and waits for the cache.
  target_compile_options(tenon_memory_objects PRIVATE -fno-tree-slp-vectorize)
  # -O3 for what it inlines: its loops are a tenth larger and not faster, since most run once.
  # Aligned targets of jumps make the code 3 % larger and not faster.
  set(inlining -O2 --param=early-inlining-insns=14 --param=max-inline-insns-auto=30
      --param=max-inline-insns-single=200 --param=inline-min-speedup=15 -fno-align-jumps)
  target_compile_options(tenon_memory_objects PRIVATE "$<$<CONFIG:Release>:${inlining}>")
endif()

if("lab" IN_LIST TENON_COMPONENTS)
  tenon_add_library(lab trace lab)
  target_compile_options(tenon_lab_objects PRIVATE $<$<CONFIG:Release>:-O2>)
  tenon_use_libraries(lab TENON memory PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE PkgConfig::zstd PkgConfig::zlib
                              $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  # TENON_RECORD works in every program, also in those that name nothing of the recorder. A linker
  # takes no object of an archive that nothing names, and with --as-needed no such shared library.
  target_link_options(tenon_lab INTERFACE LINKER:--undefined=tenon_recording_from_environment)
  if(TENON_SHARED)
    set(file $<TARGET_FILE:tenon::lab_shared>)
    target_link_options(tenon_lab_shared INTERFACE
      LINKER:--push-state,--no-as-needed,${file},--pop-state)
  endif()
endif()

if("tensor" IN_LIST TENON_COMPONENTS)
  tenon_add_library(tensor tensor ops autograd nn)
  tenon_use_libraries(tensor TENON memory PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE PkgConfig::zlib PkgConfig::hwy PkgConfig::openblas
                              $<BUILD_INTERFACE:${TENON_DNNL}> $<INSTALL_INTERFACE:dnnl>
                              gomp
                              $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  set(has_vulkan_kernels 0)
  if(TENON_VULKAN_INCLUDE AND TENON_GLSLC)
    set(has_vulkan_kernels 1)
    target_include_directories(tenon_tensor_objects PRIVATE ${PROJECT_BINARY_DIR}/shaders)
    set(f32 -DCLASS=0 -DWIDE=1)
    set(f32_plain -DCLASS=0 -DWIDE=0)  # what every device computes
    set(f64 -DCLASS=1 -DWIDE=1)
    set(i64 -DCLASS=2 -DWIDE=1)
    set(i32 -DCLASS=3 -DWIDE=0)
    foreach(variant f32 f32_plain f64 i64 i32)
      tenon_add_shader(ops/kernels/vulkan/device_lines.cc reduce ${variant} ${${variant}})
    endforeach()
    set(elements tensor/kernels/vulkan/elements.cc elements)
    foreach(variant f32 f32_plain f64)
      tenon_add_shader(${elements} ${variant}_arithmetic ${${variant}} -DGROUP=0)
      tenon_add_shader(${elements} ${variant}_exponentials ${${variant}} -DGROUP=1)
      tenon_add_shader(${elements} ${variant}_circles ${${variant}} -DGROUP=2)
    endforeach()
    foreach(variant i64 i32)
      tenon_add_shader(${elements} ${variant}_arithmetic ${${variant}} -DGROUP=0)
      tenon_add_shader(${elements} ${variant}_moves ${${variant}} -DGROUP=3)
    endforeach()
    foreach(variant f32 f32_plain f64 i64)
      tenon_add_shader(ops/kernels/vulkan/device_lines.cc sort ${variant} ${${variant}})
    endforeach()
    set(products ops/kernels/vulkan/device_kernels.cc)
    tenon_add_shader(${products} matmul_lanes f32 ${f32} -Os)
    tenon_add_shader(ops/kernels/vulkan/device_correlation.cc correlate f32 ${f32} -Os)
    set(places ops/kernels/vulkan/device_places.cc)
    tenon_add_shader(${places} shifts f32 ${f32} -Os)
    tenon_add_shader(${places} matmul_places f32 ${f32} -Os -DTAPS=0)
    tenon_add_shader(${places} matmul_places f32_taps ${f32} -Os -DTAPS=1)
    tenon_add_shader(ops/kernels/vulkan/device_arrange.cc arrange f32 ${f32} -Os)
    set(few ops/kernels/vulkan/device_groups.cc)
    tenon_add_shader(${few} group_windows f32 ${f32} -Os -DSUMS=0)
    tenon_add_shader(${few} group_windows f32_sums ${f32} -Os -DSUMS=1)
    tenon_add_shader(${products} matmul_texels f32 ${f32} -Os -DWINDOWS=0)
    tenon_add_shader(${products} matmul_texels f32_windows ${f32} -Os -DWINDOWS=1)
    foreach(variant f32_plain f64)
      tenon_add_shader(ops/kernels/vulkan/device_windows.cc windows ${variant} ${${variant}})
      tenon_add_shader(ops/kernels/vulkan/device_windows.cc update ${variant} ${${variant}})
      tenon_add_shader(tensor/kernels/vulkan/random_numbers.cc random ${variant} ${${variant}})
    endforeach()
    foreach(variant f32_plain f64 i64)
      tenon_add_shader(ops/kernels/vulkan/device_lines.cc rows ${variant} ${${variant}})
      tenon_add_shader(ops/kernels/vulkan/device_lines.cc index ${variant} ${${variant}})
      tenon_add_shader(ops/kernels/vulkan/device_kernels.cc matmul ${variant} ${${variant}} -Os)
    endforeach()
  endif()
  target_compile_definitions(tenon_tensor_objects PRIVATE
    TENON_HAS_VULKAN_KERNELS=${has_vulkan_kernels})
  set(kernels ${TENON_SOURCE_DIR}/ops/kernels/cpu)
  # Square roots that need not set errno can be vectorised, and so can rounding that may raise flags
  # and arithmetic that only one side of a choice needs.
  set(derivatives ${TENON_SOURCE_DIR}/autograd/derivatives)
  set_source_files_properties(${kernels}/unary_blocks.cc ${kernels}/binary_blocks.cc
    ${kernels}/loss_blocks.cc ${derivatives}/unary.cc ${derivatives}/loss.cc PROPERTIES
    COMPILE_OPTIONS "-fno-math-errno;-fno-trapping-math" SKIP_PRECOMPILE_HEADERS ON)
  # Its formulas have the operators' names.
  set_source_files_properties(${derivatives}/binary.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Square roots that need not set errno can be vectorised. Updates have the same bits however their
  # elements are cut, so a product and a sum are two roundings everywhere.
  set_source_files_properties(${TENON_SOURCE_DIR}/nn/optimizer_blocks.cc PROPERTIES
    COMPILE_OPTIONS "-fno-math-errno;-ffp-contract=off" SKIP_PRECOMPILE_HEADERS ON)
endif()

# Training on several processes. A part of the command: nothing else needs it, and MPI has no one
# ABI that a library could be built for.
if("tensor" IN_LIST TENON_COMPONENTS AND "command" IN_LIST TENON_COMPONENTS)
  file(GLOB sources CONFIGURE_DEPENDS ${TENON_SOURCE_DIR}/distributed/*.cc)
  if(NOT TENON_MPI)
    list(FILTER sources EXCLUDE REGEX /mpi_group)
  endif()
  add_library(tenon_distributed STATIC ${sources})
  tenon_unite(tenon_distributed ${TENON_SOURCE_DIR} ${sources})
  target_link_libraries(tenon_distributed PUBLIC tenon_tensor
                        PRIVATE tenon_options nlohmann_json::nlohmann_json)
  target_compile_definitions(tenon_distributed PUBLIC TENON_HAS_MPI=$<BOOL:${TENON_MPI}>)
  if(TENON_MPI)
    target_link_libraries(tenon_distributed PRIVATE MPI::MPI_CXX)
  endif()
endif()

# All that is built, for what does not choose.
add_library(tenon INTERFACE)
foreach(part memory lab tensor)
  if(TARGET tenon_${part})
    target_link_libraries(tenon INTERFACE tenon_${part})
  endif()
endforeach()
add_library(tenon::tenon ALIAS tenon)
