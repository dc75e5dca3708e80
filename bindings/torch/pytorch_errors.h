// PyTorch's own exceptions, thrown without its headers.
#pragma once

#include <string>

namespace tenon::torch {

// Throws c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError (RuntimeError's child),
// when this process has PyTorch's libc10 and it is built as we know it (both of GCC's strings); else std::runtime_error,
// which PyTorch makes a RuntimeError. Either way with this message. Thread-safe.
[[noreturn]] void throw_out_of_memory(const std::string& message);

// Throws std::runtime_error: PyTorch makes it a RuntimeError.
[[noreturn]] void throw_error(const std::string& message);

}  // namespace tenon::torch
