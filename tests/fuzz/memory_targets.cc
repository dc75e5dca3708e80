// Every policy under calls in random order, with a driver that fails.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "target.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon::fuzz {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kCheckEvery = 256;  // a check costs as much as a hundred steps

class Run : InputNumbers {
 public:
  explicit Run(std::string_view bytes)
      : InputNumbers(bytes), policy_(choose_policy()), backend_(options()) {
    allocator_ = policy_.make(backend_, {});
    for (int i = 0; i < 3; ++i) streams_.push_back(backend_.create_stream());
    streams_.push_back(Stream{backend_.device(), 0});
  }

  void go() {
    for (int i = 1; !empty(); ++i) {
      attempt([&] { step(); });
      if (i % kCheckEvery == 0) allocator_->check_invariants();
    }
    allocator_->check_invariants();
    backend_.clear_failures();
    blocks_.clear();
    for (const Stream stream : streams_) backend_.queue_work(stream);
    backend_.advance_to(now_ns_ += 1'000'000'000);
    attempt([&] { allocator_->empty_cache(); });
    allocator_->check_invariants();
    require(allocator_->stats().allocated_bytes[0].current == 0, "nothing is allocated any more");
  }

 private:
  template <typename Step>
  static void attempt(Step&& step) {
    try {
      step();
    } catch (const OutOfMemory&) {
    } catch (const DeviceError&) {
    } catch (const InvalidArgument&) {
    } catch (const InvalidPointer&) {
    }
  }

  std::uint8_t take() { return InputNumbers::take<std::uint8_t>(); }
  const Policy& choose_policy() {
    std::vector<const Policy*> usable;
    for (const Policy& policy : policies())
      if (!policy.needs_plan) usable.push_back(&policy);
    return *usable[take() % usable.size()];
  }
  SimOptions options() {
    SimOptions options;
    options.capacity_bytes = (1 + take() % 64) * 16 * kMiB;
    options.lag_ns = take() % 4 * 1'000'000;
    return options;
  }
  std::uint64_t size() {
    const std::uint64_t base = std::uint64_t{1} << (take() % 28);
    return base + base * take() / 256;
  }

  void step() {
    const std::uint8_t what = take();
    const Stream stream = streams_[what / 16 % 4];
    switch (what % 16) {
      case 0: case 1: case 2: case 3: case 4: case 5:
        blocks_.push_back(allocator_->allocate_on(size(), stream));
        backend_.queue_work(stream);
        break;
      case 6: case 7: case 8: case 9: drop(take()); break;
      case 10:
        if (!blocks_.empty()) {
          allocator_->record_stream(blocks_[take() % blocks_.size()], stream);
          backend_.queue_work(stream);
        }
        break;
      case 11: allocator_->empty_cache(); break;
      case 12: backend_.advance_to(now_ns_ += 500'000ULL * take()); break;
      case 13:
        backend_.fail_call(static_cast<DriverCall>(take() % kDriverCalls), 1 + take() % 4);
        break;
      case 14: backend_.clear_failures(); break;
      default:
        require(allocator_->stats().reserved_bytes[0].current >= 0, "reserved bytes are counted");
        allocator_->snapshot();
    }
  }
  void drop(std::size_t which) {
    if (blocks_.empty()) return;
    backend_.clear_failures();  // a DataPtr that goes cannot say that the driver refused
    std::swap(blocks_[which % blocks_.size()], blocks_.back());
    blocks_.pop_back();
  }

  const Policy& policy_;
  SimBackend backend_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<Stream> streams_;
  std::vector<DataPtr> blocks_;
  std::uint64_t now_ns_ = 0;
};

bool policies_target(std::string_view bytes) {
  Run(bytes.substr(0, 1024)).go();
  return true;
}

const Registered kMemoryTargets("policies", policies_target);

}  // namespace
}  // namespace tenon::fuzz
