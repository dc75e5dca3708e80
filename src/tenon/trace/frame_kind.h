// What a frame of a recorded call stack is: the program's own code, a library's, or machinery.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

// PyTorch records C++ frames before Python's by default (stacks="all"), so most frames of a stack
// say nothing about the program.
enum class FrameKind : std::uint8_t {
  kUser,       // Python of the program itself
  kLibrary,    // Python of an installed package
  kGenerated,  // Python that a compiler wrote: torch.compile, Triton, torch.fx
  kTorch,      // PyTorch's own Python
  kStandard,   // Python's standard library and launchers
  kOperator,   // at::_ops::mm::call, torch::autograd::THPVariable_mm
  kKernel,     // at::native::..., at::cuda::...: what an operator is made of
  kWorkspace,  // asks for scratch memory of cuBLAS, cuDNN, CUB
  kNode,       // a step of backward: torch::autograd::generated::MmBackward0::apply
  kEngine,     // autograd's own thread
  kSumGradients,  // adds gradients that meet: InputBuffer::add
  kNative,     // other compiled code: an extension, or a C++ program
  kMachinery,  // the unwinder, the allocator, dispatch, bindings, the interpreter, the C library
};

// By the patterns of a table; unknown names are kNative or kUser. O(length).
FrameKind frame_kind(std::string_view function, std::string_view file);

// Whether it is a place in a Python program.
constexpr bool is_python(FrameKind kind) { return kind <= FrameKind::kStandard; }

// "at::_ops::sum_dim_IntList::call(at::Tensor const&, ...)" -> "sum"; "at::native::(anonymous
// namespace)::index_put_(...)" -> "index_put_"; "torch::autograd::THPVariable_einsum(...)" ->
// "einsum". Empty where the name tells nothing.
std::string operator_name(std::string_view function);

// "torch::autograd::generated::MmBackward0::apply(...)" -> "MmBackward0"; "torch::autograd::
// PyNode::apply" -> "PyNode".
std::string node_name(std::string_view function);
// The operator that a node differentiates: "CudnnBatchNormBackward0" -> "cudnn_batch_norm".
std::string node_operator(std::string_view node);

// The part of a path that tells: behind "site-packages/".
std::string_view short_path(std::string_view path);

}  // namespace tenon
