# What Tenon cannot be built for is said here, in one line.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "Tenon is for Linux: ${CMAKE_SYSTEM_NAME} is not supported")
endif()
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "Tenon is for 64-bit processors: pointers here have ${CMAKE_SIZEOF_VOID_P} bytes")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  message(STATUS "Tenon on ${CMAKE_SYSTEM_PROCESSOR}: tenon::memory is tested under emulation, the rest is not")
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  message(WARNING "Tenon is tested on x86-64 and aarch64: ${CMAKE_SYSTEM_PROCESSOR} is not tested")
endif()
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14))
  message(FATAL_ERROR "Tenon needs GCC 12 or clang 14, or newer: this is "
          "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
endif()
