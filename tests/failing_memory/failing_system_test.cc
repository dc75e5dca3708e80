// Every policy while the system refuses one call, for each call of a schedule on real memory: maps,
// protections, files of pages, advice, threads. Afterwards the books balance, blocks keep their
// contents, the allocator serves again, and the device gets everything back.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace {

struct Refusal {
  const char* call = "";  // "" or another: calls are counted and made
  std::uint64_t nth = 0;
  int error = 0;
};
thread_local Refusal t_refusal;
thread_local std::uint64_t t_calls = 0;  // of t_refusal.call
thread_local bool t_counts_calls = false;

[[maybe_unused]] bool is_refused(const char* call) {
  if (!t_counts_calls || std::strcmp(call, t_refusal.call) != 0 || ++t_calls != t_refusal.nth)
    return false;
  errno = t_refusal.error;
  return true;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCanRefuseCalls = false;  // the sanitizer has its own
#else
constexpr bool kCanRefuseCalls = true;
extern "C" {

void* mmap(void* address, std::size_t size, int protection, int flags, int file,
           off_t offset) noexcept {
  if (is_refused("mmap")) return MAP_FAILED;
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
int munmap(void* address, std::size_t size) noexcept {
  return is_refused("munmap") ? -1 : static_cast<int>(::syscall(SYS_munmap, address, size));
}
int madvise(void* address, std::size_t size, int advice) noexcept {
  return is_refused("madvise") ? -1
                               : static_cast<int>(::syscall(SYS_madvise, address, size, advice));
}
int mprotect(void* address, std::size_t size, int protection) noexcept {
  if (is_refused("mprotect")) return -1;
  return static_cast<int>(::syscall(SYS_mprotect, address, size, protection));
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return is_refused("memfd_create") ? -1
                                    : static_cast<int>(::syscall(SYS_memfd_create, name, flags));
}
int ftruncate(int file, off_t size) noexcept {
  return is_refused("ftruncate") ? -1 : static_cast<int>(::syscall(SYS_ftruncate, file, size));
}
int fallocate(int file, int mode, off_t offset, off_t size) {
  return is_refused("fallocate")
             ? -1
             : static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, size));
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(
      ::dlsym(RTLD_NEXT, "pthread_create"));
  return is_refused("pthread_create") ? EAGAIN : real(thread, attributes, run, argument);
}

}  // extern "C"
#endif

namespace tenon {
namespace {

constexpr Refusal kRefusals[] = {{"mmap", 0, ENOMEM},         {"munmap", 0, ENOMEM},
                                 {"madvise", 0, EINVAL},      {"mprotect", 0, ENOMEM},
                                 {"mprotect", 0, EACCES},     {"memfd_create", 0, EMFILE},
                                 {"memfd_create", 0, ENOMEM}, {"ftruncate", 0, ENOSPC},
                                 {"fallocate", 0, EOPNOTSUPP}, {"pthread_create", 0, EAGAIN}};

class CallsCounted {
 public:
  CallsCounted() { t_counts_calls = true; }
  ~CallsCounted() { t_counts_calls = false; }
};

template <typename Step>
void attempt(Step&& step) {
  try {
    const CallsCounted counted;
    step();
  } catch (const std::bad_alloc&) {
  } catch (const DeviceError&) {
  } catch (const InvalidArgument&) {  // a policy that knows no record_stream
  }
}

// A device of real memory, small.
struct Real {
  explicit Real(bool simulated) {
    if (simulated) {
      SimOptions options;
      options.capacity_bytes = kGiB;
      options.real_memory = true;
      sim = std::make_unique<SimBackend>(options);
    } else {
      HostOptions options;
      options.limit_bytes = kGiB;
      host = std::make_unique<HostBackend>(options);
    }
  }
  Backend& backend() { return sim ? static_cast<Backend&>(*sim) : *host; }
  std::uint64_t used_bytes() {
    if (sim) return sim->used_bytes();
    host->trim();
    return host->held_bytes();
  }
  std::unique_ptr<SimBackend> sim;
  std::unique_ptr<HostBackend> host;
};

struct Block {
  DataPtr data;
  std::uint64_t size_bytes = 0;
  std::uint8_t mark = 0;
};

bool is_whole(const Block& block) {
  const auto* bytes = static_cast<const std::uint8_t*>(block.data.get());
  return bytes[0] == block.mark && bytes[block.size_bytes / 2] == block.mark &&
         bytes[block.size_bytes - 1] == block.mark;
}

void run_schedule(DeviceAllocator& allocator, const Stream (&streams)[2],
                  std::vector<Block>& live) {
  Random random(7);
  for (int step = 0; step < 48; ++step) {
    const Stream stream = streams[random.below(2)];
    const std::uint64_t size = random.between(1, std::uint64_t{1} << random.between(8, 24));
    const bool allocates = live.size() < 2 || random.chance(0.55);
    const std::size_t which = live.empty() ? 0 : random.below(live.size());
    if (allocates) {
      attempt([&] {
        Block made{allocator.allocate_on(size, stream), size, static_cast<std::uint8_t>(step)};
        auto* bytes = static_cast<std::uint8_t*>(made.data.get());
        bytes[0] = bytes[size / 2] = bytes[size - 1] = made.mark;
        live.push_back(std::move(made));
      });
    } else {
      ASSERT_TRUE(is_whole(live[which])) << "another block's bytes, or lost ones";
      std::swap(live[which], live.back());
      const CallsCounted counted;
      live.pop_back();  // a destructor that throws ends the program
    }
    if (step % 12 == 5) attempt([&] { allocator.record_stream(live.back().data, streams[0]); });
    if (step % 16 == 15) attempt([&] { allocator.empty_cache(); });
  }
}

// One schedule with one refusal; returns how many calls of the kind were made.
std::uint64_t run_refusing(const std::string& policy, bool simulated, const Refusal& refusal) {
  Real real(simulated);
  const Stream streams[2] = {Stream{real.backend().device(), 0}, real.backend().create_stream()};
  t_calls = 0;
  t_refusal = refusal;
  std::unique_ptr<DeviceAllocator> allocator;
  attempt([&] { allocator = make_policy(policy, real.backend()); });
  if (allocator != nullptr) {
    std::vector<Block> live;
    run_schedule(*allocator, streams, live);
    EXPECT_NO_THROW(allocator->check_invariants());
    EXPECT_EQ(allocator->stats().allocation[0].current, static_cast<std::int64_t>(live.size()));
    for (const Block& block : live) EXPECT_TRUE(is_whole(block));
    const std::uint64_t refused_by_now = t_calls;
    t_refusal.nth = 0;
    for (const Stream stream : streams) EXPECT_NO_THROW(allocator->allocate_on(3 * kMiB, stream));
    EXPECT_NO_THROW(allocator->check_invariants());
    t_calls = refused_by_now;
    t_refusal.nth = refusal.nth;
    live.clear();
    attempt([&] { allocator->empty_cache(); });
    {
      const CallsCounted counted;
      allocator.reset();
    }
  }
  // Pages stay mapped where the map that undoes them is refused.
  const bool was_refused = refusal.nth != 0 && t_calls >= refusal.nth;
  const bool keeps = was_refused && std::strcmp(refusal.call, "mmap") == 0;
  if (!keeps) {
    EXPECT_EQ(real.used_bytes(), 0u) << "memory of the device leaked";
  }
  return t_calls;
}

class FailingSystem : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!kCanRefuseCalls) GTEST_SKIP() << "the sanitizer makes these calls";
  }
};

TEST_P(FailingSystem, AnySingleCallMayBeRefused) {
  std::uint64_t refused = 0;
  for (const bool simulated : {false, true})
    for (Refusal refusal : kRefusals) {
      refusal.nth = 0;
      const std::uint64_t calls = run_refusing(GetParam(), simulated, refusal);
      for (refusal.nth = 1; refusal.nth <= calls; ++refusal.nth, ++refused) {
        SCOPED_TRACE(std::string(refusal.call) + " number " + std::to_string(refusal.nth) +
                     (simulated ? ", simulated device" : ", host"));
        run_refusing(GetParam(), simulated, refusal);
        if (HasFailure()) return;
      }
    }
  EXPECT_GE(refused, 2u) << "the refusals do not reach the device";
}

INSTANTIATE_TEST_SUITE_P(Policies, FailingSystem,
                         ::testing::Values("host", "caching", "expandable", "stitched", "pool",
                                           "buddy", "arena", "unified", "system"),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace tenon
