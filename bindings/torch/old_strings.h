// PyTorch built with the string of before C++11.
#pragma once

#include <cstdint>

namespace tenon::torch {

struct SourceLocation {  // c10::SourceLocation, passed by value
  const char* function;
  const char* file;
  std::uint32_t line;
};

// Calls c10::Error's constructor, which takes such a string.
void construct_with_old_string(void* constructor, void* object, SourceLocation where,
                               const char* message);

}  // namespace tenon::torch
