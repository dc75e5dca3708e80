# cmake --install: headers, libraries, CMake files and pkg-config files of each component, and the
# command. An outside project then says find_package(Tenon COMPONENTS memory), or asks pkg-config
# for tenon-memory.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(tenon_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Tenon)

# The install component of a part: tensor's brings OpenBLAS and oneDNN along.
function(tenon_package_of name result)
  if(name STREQUAL "tensor")
    set(${result} libtenon-tensor PARENT_SCOPE)
  else()
    set(${result} libtenon PARENT_SCOPE)
  endif()
endfunction()

# tenon_install_headers(NAME LAYERS...)
function(tenon_install_headers name)
  tenon_package_of(${name} package)
  foreach(layer IN LISTS ARGN)
    install(DIRECTORY ${TENON_SOURCE_DIR}/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon
            COMPONENT ${package}-dev FILES_MATCHING PATTERN "*.h")
  endforeach()
endfunction()

# tenon_install_library(NAME "pkg-config requirements" "private ones" "private libraries").
function(tenon_install_library name requires requires_private libs_private)
  tenon_package_of(${name} package)
  install(TARGETS tenon_${name} EXPORT Tenon_${name}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${package}-dev)
  if(TENON_SHARED)
    install(TARGETS tenon_${name}_shared EXPORT Tenon_${name}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${package}
            NAMELINK_COMPONENT ${package}-dev)
  endif()
  install(EXPORT Tenon_${name} NAMESPACE tenon:: FILE Tenon_${name}.cmake
          DESTINATION ${tenon_cmake_folder} COMPONENT ${package}-dev)
  tenon_install_pkg_config(${name} "${requires}" "${requires_private}"
                           "${libs_private} -pthread -ldl")
endfunction()

function(tenon_install_pkg_config name requires requires_private libs_private)
  set(pc_name tenon-${name})
  # Relative to the file itself, so that the tree may be moved.
  file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
  set(pc_libs "-L\${libdir} -ltenon_${name}")
  if(name STREQUAL "lab")  # as TenonLibraries.cmake says; the first is for the static library
    set(kept "--undefined=tenon_recording_from_environment")
    string(APPEND kept ",--push-state,--no-as-needed,-ltenon_lab,--pop-state")
    set(pc_libs "-L\${libdir} -Wl,${kept} -ltenon_lab")
  endif()
  set(pc_requires "${requires}")
  set(pc_requires_private "${requires_private}")
  set(pc_libs_private "${libs_private}")
  if(NOT TENON_SHARED)  # the static library brings nothing along
    set(pc_requires "${pc_requires} ${pc_requires_private}")
    set(pc_libs "${pc_libs} ${pc_libs_private}")
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tenon.pc.in ${PROJECT_BINARY_DIR}/${pc_name}.pc @ONLY)
  tenon_package_of(${name} package)
  install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${package}-dev)
endfunction()

set(backtrace "")
if(TENON_HAS_LIBBACKTRACE)
  set(backtrace "-lbacktrace")
endif()
tenon_install_library(memory "fmt" "" "${backtrace}")
tenon_install_headers(memory base device heap memory)
if(TARGET tenon_lab)
  tenon_install_library(lab "tenon-memory fmt" "libzstd zlib" "")
  tenon_install_headers(lab trace lab)
endif()
if(TARGET tenon_tensor)
  tenon_install_library(tensor "tenon-memory fmt" "zlib libhwy openblas" "-ldnnl -lgomp")
  tenon_install_headers(tensor tensor ops autograd nn)
endif()
if(TARGET tenon_c)
  install(TARGETS tenon_c EXPORT Tenon_c
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libtenon
          NAMELINK_COMPONENT libtenon-dev)
  install(EXPORT Tenon_c NAMESPACE tenon:: FILE Tenon_c.cmake
          DESTINATION ${tenon_cmake_folder} COMPONENT libtenon-dev)
  install(FILES ${PROJECT_SOURCE_DIR}/bindings/c/include/tenon/tenon.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon COMPONENT libtenon-dev)
  tenon_install_pkg_config(c "" "" "")
endif()
if(TARGET tenon_preload)
  # Not for linking: no name without a version for the linker to find.
  install(TARGETS tenon_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libtenon)
endif()
if(TARGET tenon_command)
  install(TARGETS tenon_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tenon)
endif()
if(TARGET tenon_training)
  install(TARGETS tenon_training RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tenon
          COMPONENT tenon-training)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TenonConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TenonConfig.cmake INSTALL_DESTINATION ${tenon_cmake_folder})
# Before 1.0 a minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TenonConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TenonConfig.cmake ${PROJECT_BINARY_DIR}/TenonConfigVersion.cmake
        DESTINATION ${tenon_cmake_folder} COMPONENT libtenon-dev)

if(TARGET tenon_lab AND TARGET tenon_tensor AND TARGET tenon_c AND TARGET tenon_preload
   AND TARGET tenon_command AND TENON_SHARED)
  include(TenonPackage)
endif()
