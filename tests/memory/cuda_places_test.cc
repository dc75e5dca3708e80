// Places of CUDA devices that nobody registered, in a process of its own: a driver is opened once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tenon/base/error.h"
#include "tenon/memory/compat/places.h"

namespace tenon {
namespace {

bool gpus_are_found() {
  ::setenv("TENON_CUDA_DRIVER", TENON_CUDA_STAND_IN_LIBRARY, 1);
  ::setenv("TENON_CUDA_STAND_IN", "devices=2", 1);
  if (gpu_count() != 2) return false;
  void* const block = memory::alloc(GpuPlace(1), 16);
  char back[16] = {};
  memory::copy(GpuPlace(1), block, CpuPlace(), "fifteen letters", 16);
  memory::copy(CpuPlace(), back, GpuPlace(1), block, 16);
  const bool is_there = std::strcmp(back, "fifteen letters") == 0 && memory::used(GpuPlace(1)) > 0;
  memory::free(GpuPlace(1), block);
  try {
    static_cast<void>(place_allocator(GpuPlace(2)));
  } catch (const InvalidArgument&) {
    return is_there && memory::used(GpuPlace(0)) == 0;
  }
  return false;
}

TEST(CudaPlacesDeathTest, GpusAreCountedByTheDriverAndFindTheirBackend) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(gpus_are_found() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenon
