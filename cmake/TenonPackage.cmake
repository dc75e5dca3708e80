# Debian packages by CPack: `make package`. Each component of TenonInstall is one; what each depends on
# is what its programs and libraries are linked with (dpkg-shlibdeps).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tenon)
set(CPACK_PACKAGE_VENDOR "Tenon")
set(CPACK_PACKAGE_CONTACT "Tenon developers <tenon@packages.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/bindings/c)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_COMPONENTS_ALL "")
# tenon_package(NAME SECTION "one line" "more lines").
macro(tenon_package name section line text)
  list(APPEND CPACK_COMPONENTS_ALL ${name})
  string(TOUPPER ${name} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${line}\n${text}")
  set(doc share/doc/${name})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright DESTINATION ${doc} COMPONENT ${name})
  install(FILES ${PROJECT_BINARY_DIR}/changelog.gz DESTINATION ${doc} COMPONENT ${name})
endmacro()

configure_file(${PROJECT_SOURCE_DIR}/cmake/debian_changelog.in ${PROJECT_BINARY_DIR}/changelog @ONLY)
execute_process(COMMAND gzip -9nc ${PROJECT_BINARY_DIR}/changelog
                OUTPUT_FILE ${PROJECT_BINARY_DIR}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)

if(TARGET tenon_command)
  tenon_package(tenon devel "explain, replay and plan recorded allocations"
    "The command tenon reads memory snapshots of PyTorch and other recordings: what filled a\nmemory, what any allocator would have needed, and which settings would have helped.")
  set(CPACK_DEBIAN_TENON_PACKAGE_SUGGESTS tenon-training)
endif()
if(TARGET tenon_training)
  tenon_package(tenon-training science "train models in a known amount of memory"
    "The subcommands train, generate and vectors of the command tenon.")
  set(CPACK_DEBIAN_TENON-TRAINING_PACKAGE_RECOMMENDS tenon)
endif()
if(TENON_SHARED)
  tenon_package(libtenon libs "memory allocators for tensor runtimes"
    "Allocators over the host's memory, GPUs and devices of a program's own, the lab for their\nrecordings, the C interface, and libtenon_preload.so for programs that know nothing of Tenon.")
  if(TARGET tenon_tensor)
    tenon_package(libtenon-tensor libs "tensors on Tenon's allocators"
      "Tensors, operators, gradients and modules.")
  endif()
  tenon_package(libtenon-dev libdevel "memory allocators for tensor runtimes: headers"
    "Headers, static libraries, CMake and pkg-config files of Tenon.")
  set(CPACK_DEBIAN_LIBTENON-DEV_PACKAGE_DEPENDS
      "libtenon (= ${PROJECT_VERSION}), libfmt-dev, libzstd-dev, zlib1g-dev")
  set(CPACK_DEBIAN_LIBTENON-DEV_PACKAGE_RECOMMENDS
      "libtenon-tensor (= ${PROJECT_VERSION}), libopenblas-dev, libdnnl-dev, libhwy-dev")
endif()
include(CPack)
