// The Python module, with a fake torch, over the stand-in driver.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <string>

namespace tenon {
namespace {

struct Case {
  std::string name;
  std::string environment = "";
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// A sanitizer's runtime, and the C++ library that it wraps, must be in a process before Python
// loads what is built with it. Python's own leaks are not ours to count.
std::string sanitizer_environment() {
#if defined(__SANITIZE_ADDRESS__)
  const char* const start = "__asan_init";
#elif defined(__SANITIZE_THREAD__)
  const char* const start = "__tsan_init";
#else
  return "";
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const auto library_of = [](const char* name) {
    Dl_info place;
    return ::dladdr(::dlsym(RTLD_DEFAULT, name), &place) != 0 ? std::string(place.dli_fname) : "";
  };
  return fmt::format("LD_PRELOAD='{}:{}' ASAN_OPTIONS=detect_leaks=0", library_of(start),
                     library_of("_ZSt9terminatev"));
#endif
}

class TenonTorchModule : public ::testing::TestWithParam<Case> {};

TEST_P(TenonTorchModule, Holds) {
  static const bool has_python =
      std::system("python3 -c 'import ctypes, pickle' >/dev/null 2>&1") == 0;
  if (!has_python) GTEST_SKIP() << "there is no python3 with ctypes";
  const std::string folder = TENON_SOURCE_DIR "/tests/torch";
  const std::string module = std::string(TENON_TORCH_LIBRARY).substr(
      0, std::string(TENON_TORCH_LIBRARY).rfind("/tenon_torch/"));
  const std::string line = fmt::format(
      "TENON_CUDA_DRIVER='{}' PYTHONPATH='{}/fake:{}' PYTHONDONTWRITEBYTECODE=1 {} {} "
      "python3 {}/check_module.py {} {} 2>&1",
      TENON_CUDA_STAND_IN_LIBRARY, folder, module, sanitizer_environment(), GetParam().environment,
      folder, GetParam().name, TENON_TORCH_LIBRARY);
  FILE* pipe = ::popen(line.c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    out.append(buffer.data(), n);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(out, "ok\n");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TenonTorchModule,
    ::testing::Values(Case{"life"}, Case{"every_policy"}, Case{"snapshots"}, Case{"recording"},
                      Case{"bad_arguments"}, Case{"too_late"}, Case{"refused_by_pytorch"},
                      Case{"without_record_stream", "FAKE_TORCH_LACKS=set_record_stream_fn"},
                      Case{"without_pools",
                           "FAKE_TORCH_LACKS=set_begin_allocate_to_pool,set_release_pool"},
                      Case{"no_driver", "TENON_CUDA_DRIVER=libno_such_driver.so"},
                      Case{"old_driver", "TENON_CUDA_STAND_IN=version=10020"},
                      Case{"no_device", "TENON_CUDA_STAND_IN=devices=0"}, Case{"two_libraries"},
                      Case{"fork"}, Case{"pytorch_functions"}, Case{"without_functions"},
                      Case{"memory_pools"}, Case{"pools_that_graphs_keep"}, Case{"refusals"},
                      Case{"shareable_pools"}, Case{"traces_add_up"}, Case{"call_stacks"},
                      Case{"threads_with_stacks"},
                      Case{"benchmarks"}, Case{"driver_gone"}, Case{"device_lost"},
                      Case{"limit_above_the_device"},
                      Case{"visible_devices_set_late", "TENON_CUDA_STAND_IN=devices=2"},
                      Case{"old_pytorch"}, Case{"without_cuda"}, Case{"out_of_memory_observers"},
                      Case{"no_memory_at_all"}, Case{"accelerator"},
                      Case{"several_devices", "TENON_CUDA_STAND_IN=devices=2"}),
    [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace tenon
