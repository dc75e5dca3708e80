// Compiled with the string of before C++11 (_GLIBCXX_USE_CXX11_ABI=0): no std::string may pass
// between this file and others.
#include "old_strings.h"

#include <string>

namespace tenon::torch {

static_assert(sizeof(std::string) == sizeof(void*), "this file needs _GLIBCXX_USE_CXX11_ABI=0");

void construct_with_old_string(void* constructor, void* object, SourceLocation where,
                               const char* message) {
  using Constructor = void (*)(void*, SourceLocation, std::string);
  reinterpret_cast<Constructor>(constructor)(object, where, message);
}

}  // namespace tenon::torch
