# Debian packages by CPack, one for each install component: `make package`. libtenon-tensor and
# tenon-training stand apart because they bring OpenBLAS and oneDNN along.
set(components libtenon libtenon-dev libtenon-tensor libtenon-tensor-dev tenon tenon-training)
if("python" IN_LIST TENON_COMPONENTS)
  list(APPEND components python3-tenon)
endif()

# What Debian wants beside each package's files.
set(changelog ${PROJECT_SOURCE_DIR}/packaging/changelog)
file(STRINGS ${changelog} first LIMIT_COUNT 1)
set(release 1)
if(NOT first MATCHES "^tenon \\(${PROJECT_VERSION}-${release}\\)")
  message(FATAL_ERROR "packaging/changelog begins with \"${first}\": version ${PROJECT_VERSION}-${release} is missing")
endif()
execute_process(COMMAND gzip -9nc ${changelog}
                OUTPUT_FILE ${PROJECT_BINARY_DIR}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN LISTS components)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/copyright ${PROJECT_BINARY_DIR}/changelog.Debian.gz
          DESTINATION share/doc/${component} COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_NAME tenon)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${release})
file(STRINGS ${changelog} signed REGEX "^ -- ")
string(REGEX REPLACE "^ -- (.*)  .*$" "\\1" CPACK_DEBIAN_PACKAGE_MAINTAINER "${signed}")
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/bindings/python)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY =)  # C++ interfaces may change with each version
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# tenon_package(COMPONENT SECTION "one line" "the longer text" [DEPENDS ...] [RECOMMENDS ...])
set(same "(= ${PROJECT_VERSION}-${release})")
macro(tenon_package component section line text)
  cmake_parse_arguments(of "" "DEPENDS;RECOMMENDS" "" ${ARGN})
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${component})
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${line}\n${text}")
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${line}\n${text}")
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${of_DEPENDS}")
  set(CPACK_DEBIAN_${key}_PACKAGE_RECOMMENDS "${of_RECOMMENDS}")
endmacro()
tenon_package(libtenon libs "memory allocators for tensor runtimes"
  "Allocators over the host, NVIDIA GPUs and simulated devices, as C++ and C
libraries, recordings of what programs allocate, and a library to preload
under programs on the CPU.")
tenon_package(libtenon-dev libdevel "memory allocators for tensor runtimes: development files"
  "Headers, static libraries, CMake and pkg-config files of tenon::memory,
tenon::lab and the C interface."
  DEPENDS "libtenon ${same}, libfmt-dev, libzstd-dev, zlib1g-dev, pkg-config")
tenon_package(libtenon-tensor libs "tensors, operators and gradients over Tenon's allocators"
  "Strided tensors, operators on the CPU, gradients, modules and optimisers."
  DEPENDS "libtenon ${same}")
tenon_package(libtenon-tensor-dev libdevel "tensors over Tenon's allocators: development files"
  "Headers, static library, CMake and pkg-config files of tenon::tensor."
  DEPENDS "libtenon-tensor ${same}, libtenon-dev ${same}, libhwy-dev, libopenblas-dev, libdnnl-dev")
tenon_package(tenon devel "finds out why a PyTorch model ran out of GPU memory"
  "Explains PyTorch's memory snapshots, replays them over other allocators and
settings, and advises what to change. It needs neither PyTorch nor a GPU."
  RECOMMENDS "tenon-training")
tenon_package(tenon-training devel "trains small models over Tenon's allocators"
  "The commands train, generate and vectors of tenon."
  DEPENDS "tenon ${same}")
if("python" IN_LIST TENON_COMPONENTS)
  math(EXPR after "${TENON_PYTHON_MINOR} + 1")
  tenon_package(python3-tenon python "memory allocators and the lab for PyTorch snapshots, for Python"
    "The module tenon: recordings as NumPy arrays, explanations and advice,
allocators that share their memory by DLPack, and tensors with gradients."
    DEPENDS "python3 (>= 3.${TENON_PYTHON_MINOR}), python3 (<< 3.${after})" RECOMMENDS "python3-numpy")
  set(CPACK_DEBIAN_PYTHON3-TENON_PACKAGE_CONTROL_EXTRA
      "${PROJECT_SOURCE_DIR}/packaging/postinst;${PROJECT_SOURCE_DIR}/packaging/prerm")
endif()
foreach(key LIBTENON LIBTENON-TENSOR)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/triggers)
endforeach()
include(CPack)
