// Stacks as PyTorch records them, and what they say to people.
#include "tenon/trace/call_site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon {
namespace {

struct Line {
  const char* function;
  const char* file;
  std::uint32_t line = 0;
};

// What every stack of a recording with stacks="all" begins with.
const std::vector<Line> kAllocator = {
    {"torch::unwind::unwind()", "??"},
    {"torch::CapturedTraceback::gather(bool, bool, bool)", "??"},
    {"torch::cuda::(anonymous namespace)::gather_with_cpp()", "memory_snapshot.cpp"},
    {"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, "
     "unsigned long, CUstream_st*)",
     "CUDACachingAllocator.cpp"},
    {"c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(size_t)", ""},
    {"at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)", "??"},
    {"at::(anonymous namespace)::create_out(c10::ArrayRef<long>)", "RegisterCUDA.cpp"},
    {"at::(anonymous namespace)::wrapper_CUDA_mm(at::Tensor const&)", "RegisterCUDA.cpp"},
    {"c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<c10::"
     "CompileTimeFunctionPointer<at::Tensor (at::Tensor const&), &at::_ops::x>>>::call()",
     "RegisterCUDA.cpp"}};

const std::vector<Line> kEngine = {
    {"torch::autograd::Node::operator()(std::vector<at::Tensor>&&)", ""},
    {"torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
     "??"},
    {"torch::autograd::python::PythonEngine::thread_init(int)", "??"},
    {"execute_native_thread_routine", "thread48.o"},
    {"pthread_condattr_setpshared", "??"},
    {"clone", "??"}};

std::vector<Line> operator+(std::vector<Line> a, const std::vector<Line>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Described {
  CallSite site;
  std::string name;
};

Described described(const std::vector<Line>& stack) {
  SiteTable sites;
  std::vector<std::uint32_t> frames;
  for (const Line& line : stack)
    frames.push_back(sites.add_frame(line.function, line.file, line.line));
  const std::uint32_t number = sites.add_stack(frames);
  const CallSiteTable table(sites);
  return {table.call_site(table.of_stack(number)), table.name(table.of_stack(number))};
}

TEST(CallSiteTest, IsTheProgramsLineWithTheOperatorOfDefaultStacks) {
  const Described found = described(
      kAllocator +
      std::vector<Line>{
          {"at::_ops::addmm::redispatch(c10::DispatchKeySet, at::Tensor const&)", "??"},
          {"torch::autograd::VariableType::(anonymous namespace)::addmm(c10::DispatchKeySet)",
           "VariableType_0.cpp"},
          {"at::_ops::addmm::call(at::Tensor const&)", "??"},
          {"at::native::linear(at::Tensor const&, at::Tensor const&)", "??"},
          {"at::_ops::linear::call(at::Tensor const&, at::Tensor const&)", "??"},
          {"torch::autograd::THPVariable_linear(_object*, _object*, _object*)",
           "python_nn_functions.cpp"},
          {"cfunction_call", "/usr/local/src/conda/python-3.10.14/Objects/methodobject.c", 543},
          {"forward", "/opt/lib/python3.10/site-packages/torch/nn/modules/linear.py", 134},
          {"_PyEval_EvalFrameDefault", "??"},
          {"_PyFunction_Vectorcall.llvm.12275804309777372242", "??"},
          {"_call_impl", "/opt/lib/python3.10/site-packages/torch/nn/modules/module.py", 1527},
          {"forward", "/home/me/model.py", 40},
          {"slot_tp_call", "??"},
          {"<module>", "/home/me/train.py", 7},
          {"PyEval_EvalCode", "??"},
          {"__libc_start_main", "??"},
          {"_start", "??"}});
  EXPECT_EQ(found.name, "forward /home/me/model.py:40: linear (addmm)");
  EXPECT_FALSE(found.site.backward);
  EXPECT_FALSE(found.site.workspace);
}

TEST(CallSiteTest, NamesTheNodeOfBackward) {
  const Described found = described(
      kAllocator +
      std::vector<Line>{
          {"at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "??"},
          {"torch::autograd::generated::details::mm_mat1_backward(at::Tensor const&)", ""},
          {"torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)", "??"}} +
      kEngine);
  EXPECT_EQ(found.name, "backward of mm");
  EXPECT_EQ(found.site.node, "MmBackward0");
  EXPECT_EQ(found.site.op, "mm");
  EXPECT_TRUE(found.site.backward);
  EXPECT_FALSE(found.site.has_python());
}

TEST(CallSiteTest, KnowsAProgramsOwnDerivativeAndAScratchRequest) {
  const Described own = described(
      kAllocator +
      std::vector<Line>{
          {"at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)", "??"},
          {"torch::autograd::THPVariable_empty(_object*, _object*, _object*)", "x.cpp"},
          {"backward", "/x/site-packages/bitsandbytes/autograd/_functions.py", 540},
          {"_PyEval_EvalFrame", "/x/Include/internal/pycore_ceval.h", 46},
          {"apply", "/x/site-packages/torch/autograd/function.py", 288},
          {"torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", "??"}} +
      kEngine);
  EXPECT_EQ(own.name, "backward bitsandbytes/autograd/_functions.py:540: empty, backward");
  EXPECT_EQ(own.site.node, "PyNode");
  const Described scratch = described(
      std::vector<Line>(kAllocator.begin(), kAllocator.begin() + 5) +
      std::vector<Line>{{"at::cuda::getNewWorkspace()", ""},
                        {"at::cuda::getCurrentCUDABlasHandle()", "??"},
                        {"void at::cuda::blas::gemm<float>(char)", ""},
                        {"at::_ops::bmm::call(at::Tensor const&)", "??"},
                        {"f", "a.py", 3}});
  EXPECT_EQ(scratch.name, "f a.py:3: bmm, workspace");
  EXPECT_TRUE(scratch.site.workspace);
}

TEST(CallSiteTest, FoldsLibrariesBehindTheProgramsLine) {
  EXPECT_EQ(described({{"relu", "/x/site-packages/torch/nn/functional.py", 1723},
                       {"forward", "train.py", 117},
                       {"_call_impl", "/x/site-packages/torch/nn/modules/module.py", 1790},
                       {"<module>", "train.py", 178}})
                .name,
            "forward train.py:117 via relu torch/nn/functional.py:1723");
  EXPECT_EQ(described({{"_init_group", "C:\\py\\Lib\\site-packages\\torch\\optim\\adam.py", 178},
                       {"fit", "C:\\py\\Lib\\site-packages\\trainer\\loop.py", 5},
                       {"main", "C:\\work\\run.py", 9}})
                .name,
            "main C:\\work\\run.py:9 via fit trainer\\loop.py:5 via _init_group "
            "torch\\optim\\adam.py:178");
}

TEST(CallSiteTest, TellsCompiledAndRecomputedCode) {
  const Described compiled =
      described({{"call", "/tmp/torchinductor_me/z3/cz3vcpgktv5ml.py", 1650},
                 {"run", "/x/site-packages/torch/_inductor/output_code.py", 460},
                 {"forward", "model.py", 22}});
  EXPECT_EQ(compiled.name, "forward model.py:22: compiled");
  const Described again =
      described({{"gelu", "model.py", 5},
                 {"forward", "model.py", 22},
                 {"backward", "/x/site-packages/torch/utils/checkpoint.py", 300},
                 {"apply", "/x/site-packages/torch/autograd/function.py", 288}});
  EXPECT_EQ(again.name, "gelu model.py:5: recomputed");
  EXPECT_TRUE(again.site.backward);
}

TEST(CallSiteTest, TakesACppProgramsOwnFunction) {
  EXPECT_EQ(described({{"train_one_step(Batch const&)", "train.cc", 88},
                       {"main", "train.cc", 120},
                       {"__libc_start_main", "??"}})
                .name,
            "train_one_step(Batch const&) train.cc:88");
}

// As PyTorch 2.15 has them: frames of functions without a source name the program.
TEST(CallSiteTest, TakesThePythonBehindFramesThatNameTheInterpreter) {
  const std::vector<Line> rest = {{"_PyObject_MakeTpCall", "/usr/bin/python3.11"},
                                  {"step", "/opt/conda/bin/python3.11"},
                                  {"_start", "/home/me/launcher"},
                                  {"train_step", "/home/me/train.py", 7},
                                  {"<module>", "/home/me/train.py", 20}};
  EXPECT_EQ(described(kAllocator + rest).name, "train_step /home/me/train.py:7");
}

TEST(CallSiteTest, ReplacesControlCharacters) {  // by U+FFFD
  EXPECT_EQ(described({{"f\x1b[31m", "a\n<script>.py", 1}}).name,
            "f\xef\xbf\xbd[31m a\xef\xbf\xbd<script>.py:1");
}

TEST(CallSiteTest, MergesStacksThatDifferInMachineryAlone) {
  SiteTable sites;
  const auto frame = [&](const char* function, const char* file) {
    return sites.add_frame(function, file, 1);
  };
  const std::vector<std::uint32_t> one = {frame("_PyEval_EvalFrameDefault", "??"),
                                          frame("f", "a.py"), frame("_start", "??")};
  const std::vector<std::uint32_t> two = {frame("f", "a.py")};
  const std::uint32_t first = sites.add_stack(one);
  const std::uint32_t second = sites.add_stack(two);
  const CallSiteTable table(sites);
  EXPECT_EQ(table.of_stack(first), table.of_stack(second));
  EXPECT_EQ(table.of_stack(0), 0u);
  EXPECT_EQ(table.size(), 2u);
}

TEST(FrameKindTest, NamesOperatorsWithoutTheirForm) {
  EXPECT_EQ(operator_name("at::_ops::sum_dim_IntList::call(at::Tensor const&)"), "sum");
  EXPECT_EQ(operator_name("at::_ops::add__Tensor::call(at::Tensor&)"), "add_");
  EXPECT_EQ(operator_name("at::_ops::_to_copy::redispatch(at::Tensor const&)"), "_to_copy");
  EXPECT_EQ(operator_name("at::native::(anonymous namespace)::index_put_(at::Tensor&)"),
            "index_put_");
  EXPECT_EQ(operator_name("at::native::structured_mm_out_cuda::impl(at::Tensor const&)"), "mm");
  EXPECT_EQ(node_operator("CudnnBatchNormBackward0"), "cudnn_batch_norm");
  EXPECT_EQ(node_operator("AccumulateGrad"), "");
}

}  // namespace
}  // namespace tenon
