#include "tenon/trace/frame_kind.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tenon {
namespace {

enum class At : std::uint8_t { kBegin, kAnywhere, kEnd, kWhole };

struct Pattern {
  std::string_view text;
  At at;
  FrameKind kind;
};

bool matches(const Pattern& pattern, std::string_view text) {
  switch (pattern.at) {
    case At::kBegin:
      return text.starts_with(pattern.text);
    case At::kAnywhere:
      return text.find(pattern.text) != std::string_view::npos;
    case At::kEnd:
      return text.ends_with(pattern.text);
    case At::kWhole:
      return text == pattern.text;
  }
  return false;
}

template <typename Table>
const Pattern* first_match(const Table& table, std::string_view text) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Pattern& pattern) { return matches(pattern, text); });
  return found == table.end() ? nullptr : &*found;
}

using enum FrameKind;
using enum At;

// Names of compiled functions, without their arguments. The first match counts.
constexpr auto kFunctions = std::to_array<Pattern>({
    // Backward, before operators: nodes call helpers whose names look like operators.
    {"torch::autograd::AccumulateGrad::", kBegin, kNode},
    {"torch::autograd::AccumulateGrad", kWhole, kNode},  // this and the next five: of profiles
    {"autograd::engine::evaluate_function", kBegin, kEngine},
    {"Backward", kEnd, kNode},
    {"Backward0", kEnd, kNode},
    {"Backward1", kEnd, kNode},
    {"aten::", kBegin, kOperator},
    {"torch::autograd::PyNode::apply", kBegin, kNode},
    {"Backward0::apply", kEnd, kNode},
    {"Backward1::apply", kEnd, kNode},
    {"Backward2::apply", kEnd, kNode},
    {"Backward3::apply", kEnd, kNode},
    {"torch::autograd::CopyBackwards::apply", kBegin, kNode},
    {"torch::autograd::CopySlices::apply", kBegin, kNode},
    {"torch::autograd::CppNode<", kBegin, kNode},
    {"torch::autograd::InputBuffer::", kBegin, kSumGradients},
    {"torch::autograd::accumulate", kBegin, kSumGradients},
    {"torch::autograd::Engine::", kBegin, kEngine},
    {"torch::autograd::python::PythonEngine::", kBegin, kEngine},
    // Scratch memory.
    {"at::cuda::getCurrentCUDABlas", kBegin, kWorkspace},
    {"at::cuda::getNewWorkspace", kBegin, kWorkspace},
    {"at::cuda::getNewCUDABlasLtWorkspace", kBegin, kWorkspace},
    {"at::cuda::getCUDABlasLtWorkspace", kBegin, kWorkspace},
    {"BlasLtWorkspace", kAnywhere, kWorkspace},
    {"at::cuda::getCurrentCUDASolver", kBegin, kWorkspace},
    {"at::cuda::getCurrentCUDASparse", kBegin, kWorkspace},
    {"at::native::run_conv_plan", kBegin, kWorkspace},
    {"at::native::run_conv_cuda_graph", kBegin, kWorkspace},
    {"at::native::try_plans", kBegin, kWorkspace},
    {"at::native::try_configs", kBegin, kWorkspace},
    {"at::native::raw_cudnn_", kBegin, kWorkspace},
    {"at::native::raw_miopen_", kBegin, kWorkspace},
    {"Workspace::Workspace", kAnywhere, kWorkspace},
    {"at::cuda::cub::", kAnywhere, kWorkspace},
    {"at::cuda::ThrustAllocator::", kAnywhere, kWorkspace},
    {"ThrustAllocator::allocate", kAnywhere, kWorkspace},
    {"cudnnBackendExecute", kBegin, kWorkspace},
    // The recorder and the allocator.
    {"torch::unwind::", kBegin, kMachinery},
    {"torch::CapturedTraceback::", kBegin, kMachinery},
    {"torch::cuda::", kBegin, kMachinery},
    {"gather_with_cpp", kAnywhere, kMachinery},
    {"CachingAllocator", kAnywhere, kMachinery},
    {"CUDAPluggableAllocator", kAnywhere, kMachinery},
    {"c10::StorageImpl", kBegin, kMachinery},
    {"c10::alloc_", kBegin, kMachinery},
    {"at::detail::", kAnywhere, kMachinery},
    {"at::TensorIterator", kAnywhere, kMachinery},
    {"at::meta::", kAnywhere, kMachinery},
    {"create_out", kEnd, kMachinery},
    // Dispatch and what is generated for it.
    {"c10::", kBegin, kMachinery},
    {"at::TensorBase::", kBegin, kMachinery},
    {"c10::impl::", kAnywhere, kMachinery},
    {"c10::Dispatcher::", kAnywhere, kMachinery},
    {"c10::callUnboxedKernelFunction", kAnywhere, kMachinery},
    {"c10::BoxedKernel", kAnywhere, kMachinery},
    {"::wrapper_", kAnywhere, kMachinery},
    {"::set_output_", kAnywhere, kMachinery},
    {"torch::autograd::VariableType::", kAnywhere, kMachinery},
    {"torch::ADInplaceOrView::", kAnywhere, kMachinery},
    {"torch::autograd::Node::", kBegin, kMachinery},
    {"torch::autograd::THPVariable_", kAnywhere, kOperator},
    {"torch::autograd::TypeError_to_NotImplemented_", kAnywhere, kMachinery},
    {"torch::autograd::generated::", kAnywhere, kMachinery},
    {"torch::autograd::", kAnywhere, kMachinery},
    {"at::functionalization::", kAnywhere, kMachinery},
    {"at::functorch::", kAnywhere, kMachinery},
    {"at::autocast::", kAnywhere, kMachinery},
    {"at::indexing::", kBegin, kMachinery},
    {"at::_ops::", kAnywhere, kOperator},
    {"c10d::", kAnywhere, kNative},
    {"at::native::", kAnywhere, kKernel},
    {"at::cuda::", kAnywhere, kKernel},
    {"at::hip::", kAnywhere, kKernel},
    {"at::Tensor::", kBegin, kKernel},
    {"at::", kBegin, kKernel},
    {"THPFunction_apply", kBegin, kMachinery},
    {"THPEngine_", kBegin, kMachinery},
    // Bindings.
    {"pybind11::", kAnywhere, kMachinery},
    {"torch::dynamo", kBegin, kMachinery},
    {"dynamo_", kBegin, kMachinery},
    {"torch::jit::", kAnywhere, kMachinery},
    {"torch::detail::", kBegin, kMachinery},
    {"torch::utils::", kBegin, kMachinery},
    {"torch::handle_torch_function", kBegin, kMachinery},
    {"torch::inductor::", kBegin, kMachinery},
    {"torch::aot_inductor::", kBegin, kMachinery},
    {"torch::impl::dispatch", kBegin, kMachinery},
    {"dispatch_cutlass", kAnywhere, kMachinery},
    {"__nv_", kBegin, kMachinery},
    {"ffi_call", kBegin, kMachinery},
    // C++'s and C's libraries.
    {"std::", kBegin, kMachinery},
    {"void std::", kBegin, kMachinery},
    {"__gnu_cxx::", kBegin, kMachinery},
    {"execute_native_thread_routine", kBegin, kMachinery},
    {"pthread_", kBegin, kMachinery},
    {"start_thread", kWhole, kMachinery},
    {"clone", kWhole, kMachinery},
    {"__clone", kBegin, kMachinery},
    {"__libc_", kBegin, kMachinery},
    {"_start", kWhole, kMachinery},
    {"__xmknod", kBegin, kMachinery},
    {"??", kBegin, kMachinery},
    // Tenon's own recorder and allocators.
    {"tenon::Recorder", kBegin, kMachinery},
    {"tenon::CallStack", kBegin, kMachinery},
});

// Frames without a C++ name: of the interpreter (any version) and of C libraries.
constexpr auto kInterpreter = std::to_array<Pattern>({
    {"_Py", kBegin, kMachinery},
    {"Py", kBegin, kMachinery},
    {"pymain_", kBegin, kMachinery},
    {"pyrun_", kBegin, kMachinery},
    {"slot_", kBegin, kMachinery},
    {"method_", kBegin, kMachinery},
    {"cfunction_", kBegin, kMachinery},
    {"function_code_", kBegin, kMachinery},
    {"builtin_", kBegin, kMachinery},
    {"gen_", kBegin, kMachinery},
    {"type_call", kBegin, kMachinery},
    {"type_new", kBegin, kMachinery},
    {"do_call", kBegin, kMachinery},
    {"call_function", kBegin, kMachinery},
    {"partial_", kBegin, kMachinery},
    {"run_mod", kBegin, kMachinery},
    {"run_eval_", kBegin, kMachinery},
    {"object_", kBegin, kMachinery},
    {"vectorcall_", kBegin, kMachinery},
    {"wrap_", kBegin, kMachinery},
    {"task_step", kBegin, kMachinery},
    {"context_run", kBegin, kMachinery},
    {"binary_op", kBegin, kMachinery},
    {"do_richcompare", kBegin, kMachinery},
    {"infinite_lru_cache", kBegin, kMachinery},
    {"bounded_lru_cache", kBegin, kMachinery},
    {"list_", kBegin, kMachinery},
    {"map_next", kBegin, kMachinery},
    {"property_", kBegin, kMachinery},
    {"classmethod_", kBegin, kMachinery},
    {"thread_run", kBegin, kMachinery},
    {"t_bootstrap", kBegin, kMachinery},
    {"main", kWhole, kNative},
});

// Files of Python code, in one spelling of separators. The first match counts.
constexpr auto kFiles = std::to_array<Pattern>({
    {"torchinductor_", kAnywhere, kGenerated},
    {"/torch_compile_debug/", kAnywhere, kGenerated},
    {"<eval_with_key>", kBegin, kGenerated},
    {"/.triton/", kAnywhere, kGenerated},
    {"<frozen ", kBegin, kStandard},
    {"<string>", kBegin, kStandard},
    {"<__array_function__", kBegin, kStandard},
    {"-packages/torch/", kAnywhere, kTorch},
    {"-packages/triton/", kAnywhere, kTorch},
    {"torch/nn/", kBegin, kTorch},
    {"torch/optim/", kBegin, kTorch},
    {"torch/autograd/", kBegin, kTorch},
    {"torch/utils/", kBegin, kTorch},
    {"torch/_", kBegin, kTorch},
    {"torch/functional.py", kBegin, kTorch},
    {"torch/profiler/", kBegin, kTorch},
    {"torch/cuda/", kBegin, kTorch},
    {"torch/amp/", kBegin, kTorch},
    {"torch/distributed/", kBegin, kTorch},
    {"/torch/nn/modules/", kAnywhere, kTorch},
    {"/torch/nn/functional.py", kAnywhere, kTorch},
    {"/torch/nn/parallel/", kAnywhere, kTorch},
    {"/torch/optim/", kAnywhere, kTorch},
    {"/torch/autograd/", kAnywhere, kTorch},
    {"/torch/_tensor.py", kAnywhere, kTorch},
    {"/torch/_dynamo/", kAnywhere, kTorch},
    {"/torch/_inductor/", kAnywhere, kTorch},
    {"/torch/_functorch/", kAnywhere, kTorch},
    {"/torch/_higher_order_ops/", kAnywhere, kTorch},
    {"/torch/_ops.py", kAnywhere, kTorch},
    {"/torch/functional.py", kAnywhere, kTorch},
    {"/torch/utils/", kAnywhere, kTorch},
    {"/torch/distributed/", kAnywhere, kTorch},
    {"/torch/cuda/", kAnywhere, kTorch},
    {"/torch/amp/", kAnywhere, kTorch},
    {"-packages/ipykernel", kAnywhere, kStandard},
    {"-packages/IPython/", kAnywhere, kStandard},
    {"-packages/tornado/", kAnywhere, kStandard},
    {"-packages/traitlets/", kAnywhere, kStandard},
    {"-packages/", kAnywhere, kLibrary},
    {".egg/", kAnywhere, kLibrary},
    {"/lib/python3", kAnywhere, kStandard},
    {"/lib/python2", kAnywhere, kStandard},
    {"/Lib/asyncio/", kAnywhere, kStandard},
    {"/Lib/threading.py", kEnd, kStandard},
    {"/Lib/runpy.py", kEnd, kStandard},
    {"/bin/torchrun", kEnd, kStandard},
    {"/bin/accelerate", kEnd, kStandard},
    {"/bin/deepspeed", kEnd, kStandard},
});

constexpr std::array<std::string_view, 16> kNativeFiles = {
    ".c",  ".cc",  ".cpp", ".cxx", ".h", ".hpp", ".hh",  ".inc",
    ".cu", ".cuh", ".o",   ".so",  ".S", ".rs",  ".pyx", ".inl"};

// "f(int)::{lambda()#1}::operator()() const" -> up to the first argument list that is no
// "(anonymous namespace)"; template arguments stay.
std::string_view without_arguments(std::string_view name) {
  for (std::size_t at = name.find('('); at != std::string_view::npos; at = name.find('(', at + 1)) {
    if (name.substr(at).starts_with("(anonymous namespace)")) continue;
    if (at >= 8 && name.substr(at - 8, 8) == "operator") continue;
    return name.substr(0, at);
  }
  return name;
}

bool is_native(std::string_view function, std::string_view file) {
  if (file.starts_with('<')) return false;
  if (file.ends_with(".py") || file.find(".py:") != std::string_view::npos) return false;
  if (file.empty() || file.starts_with("??")) return true;
  if (function.find("::") != std::string_view::npos || function.find('(') != std::string_view::npos)
    return true;
  if (file.find(".so.") != std::string_view::npos) return true;
  // Of functions whose source it does not know, PyTorch 2.15 names the program.
  if (function == "_start" || file.find("/bin/python") != std::string_view::npos) return true;
  return std::any_of(kNativeFiles.begin(), kNativeFiles.end(),
                     [&](std::string_view end) { return file.ends_with(end); });
}

FrameKind native_kind(std::string_view function) {
  const std::string_view name = without_arguments(function);
  if (const Pattern* found = first_match(kFunctions, name)) return found->kind;
  // A C++ name has arguments; the interpreter's functions have none.
  if (name.size() == function.size() && name.find("::") == std::string_view::npos)
    if (const Pattern* found = first_match(kInterpreter, name)) return found->kind;
  return name.empty() ? kMachinery : kNative;
}

FrameKind python_kind(std::string_view file) {
  if (file.find('\\') == std::string_view::npos) {
    const Pattern* found = first_match(kFiles, file);
    return found != nullptr ? found->kind : kUser;
  }
  std::string path(file);
  std::replace(path.begin(), path.end(), '\\', '/');
  const Pattern* found = first_match(kFiles, path);
  return found != nullptr ? found->kind : kUser;
}

// What an operator's name ends in where it has several forms ("overloads").
constexpr std::array<std::string_view, 22> kForms = {
    "_out",        "_dim",       "_dtype",   "_memory_format", "_dtype_layout", "_device",
    "_padding",    "_int",       "_other",   "_default",       "_symint",       "_cuda",
    "_functional", "_names",     "_dimname", "_size",          "_vec",          "_impl_index",
    "_correction", "_generator", "_input",   "_cuda_out"};

// Forms begin with a capital letter ("sum_dim_IntList") or stand in the list.
std::string without_form(std::string_view name) {
  for (std::size_t i = 1; i + 1 < name.size(); ++i)
    if (name[i] == '_' && std::isupper(static_cast<unsigned char>(name[i + 1])) != 0) {
      name = name.substr(0, i);
      break;
    }
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view form : kForms)
      if (name.size() > form.size() + 1 && name.ends_with(form)) {
        name.remove_suffix(form.size());
        again = true;
      }
  }
  return std::string(name);
}

std::string_view identifier(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
    ++end;
  return text.substr(0, end);
}

// Behind `mark`, an identifier; empty where the mark is missing.
std::string_view identifier_behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view()
                                      : identifier(text.substr(at + mark.size()));
}

}  // namespace

FrameKind frame_kind(std::string_view function, std::string_view file) {
  return is_native(function, file) ? native_kind(function) : python_kind(file);
}

std::string operator_name(std::string_view function) {
  std::string_view name = without_arguments(function);
  for (const std::string_view mark : {"at::_ops::", "THPVariable_"})
    if (const std::string_view found = identifier_behind(name, mark); !found.empty())
      return without_form(found);
  // The last part of the qualified name, before template arguments.
  const std::string_view head = name.substr(0, name.find('<'));
  const std::size_t colons = head.rfind("::");
  std::string_view last = colons == std::string_view::npos ? head : head.substr(colons + 2);
  if (last == "impl" && colons != std::string_view::npos) {  // structured_mm_out_cuda::impl
    const std::string_view before = head.substr(0, colons);
    const std::size_t outer = before.rfind("::");
    last = outer == std::string_view::npos ? before : before.substr(outer + 2);
  }
  if (last.starts_with("structured_")) last.remove_prefix(11);
  if (const std::size_t space = last.rfind(' '); space != std::string_view::npos)
    last.remove_prefix(space + 1);
  return without_form(identifier(last));
}

std::string node_name(std::string_view function) {
  std::string_view name = without_arguments(function);
  if (name.ends_with("::apply")) name.remove_suffix(7);
  name = name.substr(0, name.find('<'));
  const std::size_t colons = name.rfind("::");
  return std::string(colons == std::string_view::npos ? name : name.substr(colons + 2));
}

std::string node_operator(std::string_view node) {
  const std::size_t end = node.rfind("Backward");
  if (end == std::string_view::npos || end == 0) return "";
  std::string out;
  for (std::size_t i = 0; i < end; ++i) {
    const auto c = static_cast<unsigned char>(node[i]);
    if (std::isupper(c) != 0 && i > 0 && std::isupper(static_cast<unsigned char>(node[i - 1])) == 0)
      out += '_';
    out += static_cast<char>(std::tolower(c));
  }
  return out;
}

std::string_view short_path(std::string_view path) {
  for (const std::string_view folder :
       {"site-packages/", "dist-packages/", "site-packages\\", "dist-packages\\"})
    if (const std::size_t at = path.rfind(folder); at != std::string_view::npos)
      return path.substr(at + folder.size());
  return path;
}

}  // namespace tenon
