// Memory for bookkeeping that can be refused, and policies over a device whose own memory cannot.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/gpu/private_pool.h"
#include "tenon/memory/policies.h"

namespace tenon::failing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCanRefuse = false;  // the sanitizer has its own allocator
#else
constexpr bool kCanRefuse = true;
#endif

// Requests of the threads that take part (t_counted), numbered from 1.
inline std::atomic<std::uint64_t> g_requests{0};
inline std::atomic<std::uint64_t> g_first_refused{0};  // 0: none
inline std::atomic<std::uint64_t> g_last_refused{0};
inline thread_local bool t_counted = false;

inline bool is_refused() {
  if (!t_counted) return false;
  const std::uint64_t number = g_requests.fetch_add(1, std::memory_order_relaxed) + 1;
  return number >= g_first_refused.load(std::memory_order_relaxed) &&
         number <= g_last_refused.load(std::memory_order_relaxed);
}

class Counted {
 public:
  explicit Counted(bool counted = true) : before_(std::exchange(t_counted, counted)) {}
  ~Counted() { t_counted = before_; }

 private:
  const bool before_;
};

inline void refuse(std::uint64_t first, std::uint64_t last) {
  g_requests = 0;
  g_first_refused = first;
  g_last_refused = last;
}
inline void refuse_nothing() { refuse(1, 0); }

// The simulated device, whose own bookkeeping is not the subject: its requests are all served.
class SparedBackend final : public Backend {
  template <typename Call>
  static auto spared(Call&& call) {
    const Counted uncounted(false);
    return call();
  }

 public:
  explicit SparedBackend(Backend& device) : device_(device) {}

  Device device() const override { return device_.device(); }
  std::string description() const override { return device_.description(); }
  const BackendLimits& limits() const override { return device_.limits(); }
  BackendMemory memory() const override { return spared([&] { return device_.memory(); }); }
  std::uint64_t total_bytes() const override { return device_.total_bytes(); }
  std::optional<Segment> allocate_segment(std::uint64_t size, MemoryKind kind) override {
    return spared([&] { return device_.allocate_segment(size, kind); });
  }
  void free_segment(const Segment& segment) override {
    spared([&] { device_.free_segment(segment); });
  }
  std::optional<AddressRange> reserve_address(std::uint64_t size) override {
    return spared([&] { return device_.reserve_address(size); });
  }
  void release_address(AddressRange range) override {
    spared([&] { device_.release_address(range); });
  }
  std::optional<PageHandle> create_pages(std::uint64_t size) override {
    return spared([&] { return device_.create_pages(size); });
  }
  void release_pages(PageHandle pages) override { spared([&] { device_.release_pages(pages); }); }
  bool map(std::uintptr_t address, PageHandle pages) override {
    return spared([&] { return device_.map(address, pages); });
  }
  bool set_access(std::uintptr_t address, std::uint64_t size) override {
    return spared([&] { return device_.set_access(address, size); });
  }
  void unmap(std::uintptr_t address, PageHandle pages) override {
    spared([&] { device_.unmap(address, pages); });
  }
  void copy(void* dest, const void* src, std::uint64_t size, Stream stream) override {
    spared([&] { device_.copy(dest, src, size, stream); });
  }
  void fill(void* dest, std::uint8_t value, std::uint64_t size, Stream stream) override {
    spared([&] { device_.fill(dest, value, size, stream); });
  }
  Stream create_stream() override { return spared([&] { return device_.create_stream(); }); }
  void destroy_stream(Stream stream) override { spared([&] { device_.destroy_stream(stream); }); }
  Event record(Stream stream) override { return spared([&] { return device_.record(stream); }); }
  bool query(Event event) override { return spared([&] { return device_.query(event); }); }
  void wait(Event event) override { spared([&] { device_.wait(event); }); }
  void stream_wait(Stream stream, Event event) override {
    spared([&] { device_.stream_wait(stream, event); });
  }
  void destroy_event(Event event) override { spared([&] { device_.destroy_event(event); }); }
  void synchronize(Stream stream) override { spared([&] { device_.synchronize(stream); }); }
  void synchronize() override { spared([&] { device_.synchronize(); }); }
  DriverLedger ledger() const override { return device_.ledger(); }

 private:
  Backend& device_;
};

constexpr int kThreads = 4;

struct Subject {
  explicit Subject(const std::string& policy, const Plan* plan = nullptr) : spared(device) {
    PolicyOptions options;
    options.plan = plan;
    if (policy == "pinned")
      allocator = std::make_unique<PinnedAllocator>(spared);
    else if (policy == "private pool")
      allocator = std::make_unique<PrivatePool>(spared);
    else
      allocator = make_policy(policy, spared, options_for(find_policy(policy), options));
    for (Stream& stream : streams) stream = device.create_stream();
  }

  static SimOptions sim_options() {
    SimOptions options;
    options.capacity_bytes = 2 * kGiB;
    options.lag_ns = 20'000;
    return options;
  }

  SimBackend device{sim_options()};
  SparedBackend spared;
  Stream streams[kThreads + 1];
  std::unique_ptr<DeviceAllocator> allocator;
};

}  // namespace tenon::failing
