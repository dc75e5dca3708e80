// The C interface under calls in random order with right, wrong, stale and mixed-up arguments: each
// gets a status for an answer, and what lives goes on working.
#include <tenon/tenon.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "target.h"
#include "tenon/tensor/interop/dlpack_abi.h"

namespace tenon::fuzz {
namespace {

// A recording of four events, for as long as the process runs.
const std::string& trace_path() {
  struct File {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("tenon-fuzz-" + std::to_string(::getpid()) + ".csv")).string();
    File() {
      std::ofstream(path) << "time_us,op,id,size,stream\n1,alloc,1,4096,0\n2,alloc,2,8192,0\n"
                             "3,free_requested,1,4096,0\n3,free_completed,1,4096,0\n";
    }
    ~File() { std::filesystem::remove(path); }
  };
  static const File file;
  return file.path;
}

// Takes its choices from the bytes, until they end.
class Caller : InputNumbers {
 public:
  explicit Caller(std::string_view bytes) : InputNumbers(bytes) {}

  void run() {
    while (!empty()) call();
    end();
  }

 private:
  struct Block {
    std::uint64_t allocator = 0;
    std::uint64_t size_bytes = 0;
    bool readable = false;
    unsigned char mark = 0;
  };

  std::uint64_t below(std::uint64_t limit) {
    return (limit <= 256 ? take<std::uint8_t>() : take<std::uint32_t>()) % limit;
  }
  std::uint64_t any() { return take<std::uint64_t>(); }
  bool once_in(std::uint64_t n) { return below(n) == 0; }

  // Mostly one that lives, of the right kind.
  std::uint64_t handle(const std::vector<std::uint64_t>& right) {
    if (once_in(12)) return any();
    if (once_in(12) && !dead_.empty()) return dead_[below(dead_.size())];
    if (once_in(20) && !backends_.empty()) return backends_[below(backends_.size())];
    if (once_in(20)) return 0;
    return right.empty() ? 0 : right[below(right.size())];
  }
  std::uint32_t stream() {
    if (once_in(20)) return static_cast<std::uint32_t>(any());
    return once_in(3) && !streams_.empty() ? streams_[below(streams_.size())] : 0;
  }
  void* pointer() {
    if (once_in(15)) return reinterpret_cast<void*>(any());
    if (once_in(15) || blocks_.empty()) return nullptr;
    return std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(below(blocks_.size())))->first;
  }

  tenon_status check(tenon_status status) {
    require(status >= TENON_OK && status <= TENON_IN_USE, "no call shows a bug of Tenon's");
    require(std::strcmp(tenon_status_name(status), "unknown") != 0, "a status has a name");
    require(status == TENON_OK || *tenon_last_error() != 0, "a failure has a message");
    return status;
  }

  void forget(std::vector<std::uint64_t>& list, std::uint64_t handle) {
    list.erase(std::remove(list.begin(), list.end(), handle), list.end());
    dead_.push_back(handle);
  }

  void make_backend() {
    std::uint64_t made = 0;
    if (once_in(3)) {
      if (check(tenon_backend_host(once_in(10) ? nullptr : &made)) == TENON_OK &&
          std::find(backends_.begin(), backends_.end(), made) == backends_.end())
        backends_.push_back(made);
      return;
    }
    tenon_simulated_device device{};
    device.struct_bytes = once_in(10) ? below(100) : sizeof(device);
    device.capacity_bytes = below(64) << 20;
    device.lag_ns = below(2) * 1'000'000;
    device.real_memory = 1;
    if (check(tenon_backend_simulated(once_in(10) ? nullptr : &device, &made)) == TENON_OK)
      backends_.push_back(made);
  }

  void make_allocator() {
    const char* const name = once_in(10) ? "none" : tenon_policy_name(below(13));
    tenon_allocator_options options{};
    options.struct_bytes = once_in(10) ? below(100) : sizeof(options);
    options.limit_bytes = once_in(3) ? below(32) << 20 : 0;
    options.conf = once_in(10) ? "max_split_size_mb:3" : nullptr;
    options.page_bytes = once_in(10) ? below(16) << 20 : 0;
    std::uint64_t made = 0;
    if (check(tenon_allocator_create(handle(backends_), name, once_in(2) ? &options : nullptr,
                                     &made)) == TENON_OK)
      allocators_.push_back(made);
  }

  void allocate() {
    const std::uint64_t allocator = handle(allocators_);
    const std::uint64_t size = once_in(50) ? any() : below(1u << below(once_in(20) ? 20 : 13));
    void* data = nullptr;
    if (check(tenon_allocate(allocator, size, stream(), &data)) != TENON_OK || data == nullptr)
      return;
    require(!blocks_.contains(data), "no two blocks have one address");
    const auto mark = static_cast<unsigned char>(any());
    std::memset(data, mark, std::min<std::uint64_t>(size, 1 << 16));
    static_cast<unsigned char*>(data)[size - 1] = mark;
    blocks_[data] = {allocator, size, true, mark};
  }

  void free() {
    void* const data = pointer();
    const auto found = blocks_.find(data);
    const std::uint64_t allocator =
        found == blocks_.end() || once_in(10) ? handle(allocators_) : found->second.allocator;
    if (found != blocks_.end()) expect_whole(found->first, found->second);
    if (check(tenon_free(allocator, data)) != TENON_OK || data == nullptr) return;
    require(found != blocks_.end() && found->second.allocator == allocator,
            "an allocator frees its own blocks");
    blocks_.erase(found);
  }

  static void expect_whole(const void* data, const Block& block) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    require(bytes[0] == block.mark && bytes[block.size_bytes - 1] == block.mark,
            "a block keeps its contents");
  }

  void export_block() {
    void* const data = pointer();
    const auto found = blocks_.find(data);
    const std::uint64_t allocator =
        found == blocks_.end() || once_in(10) ? handle(allocators_) : found->second.allocator;
    const std::int64_t shape[] = {static_cast<std::int64_t>(below(4)),
                                  static_cast<std::int64_t>(below(4)) - (once_in(10) ? 5 : 0)};
    DLManagedTensorVersioned* tensor = nullptr;
    if (check(tenon_export_dlpack(allocator, data, static_cast<std::uint8_t>(below(9)),
                                  static_cast<std::uint8_t>(below(9) * 8), shape,
                                  static_cast<std::int32_t>(below(4)) - 1, &tensor)) != TENON_OK)
      return;
    blocks_.erase(data);
    tensors_.push_back(tensor);
  }

  void end_tensor() {
    if (tensors_.empty()) return;
    const std::size_t i = below(tensors_.size());
    tensors_[i]->deleter(tensors_[i]);
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void make_observer() {
    std::uint64_t made = 0;
    const auto count = [](void* context, const tenon_event*) { ++*static_cast<int*>(context); };
    if (check(tenon_observer_add(handle(allocators_), once_in(10) ? nullptr : +count, &events_,
                                 &made)) == TENON_OK)
      observers_.push_back(made);
  }

  void destroy() {
    const std::uint64_t observer = handle(observers_);
    if (check(tenon_observer_remove(observer)) == TENON_OK) forget(observers_, observer);
    const std::uint64_t allocator = handle(allocators_);
    if (once_in(4) && check(tenon_allocator_destroy(allocator)) == TENON_OK)
      forget(allocators_, allocator);
    const std::uint64_t backend = handle(backends_);
    if (once_in(4) && check(tenon_backend_destroy(backend)) == TENON_OK)
      forget(backends_, backend);
  }

  void use_streams() {
    std::uint32_t made = 0;
    if (once_in(3) && streams_.size() < 8 &&
        check(tenon_stream_create(handle(backends_), &made)) == TENON_OK)
      streams_.push_back(made);
    check(tenon_stream_synchronize(handle(backends_), stream()));
    if (once_in(8)) check(tenon_stream_destroy(handle(backends_), stream()));
    check(tenon_record_stream(handle(allocators_), pointer(), stream()));
  }

  void ask() {
    tenon_statistics stats{};
    stats.struct_bytes = once_in(10) ? 1 : sizeof(stats);
    check(tenon_allocator_statistics(handle(allocators_), &stats));
    char* text = nullptr;
    if (check(tenon_allocator_statistics_json(handle(allocators_), &text)) == TENON_OK)
      tenon_string_free(text);
    std::uint64_t total = 0;
    std::uint64_t free = 0;
    check(tenon_backend_memory(handle(backends_), once_in(10) ? nullptr : &total, &free));
    check(tenon_empty_cache(handle(allocators_)));
    check(tenon_reset_peaks(handle(allocators_)));
    tenon_out_of_memory numbers{};
    numbers.struct_bytes = sizeof(numbers);
    check(tenon_last_out_of_memory(&numbers));
  }

  void use_files() {
    std::uint64_t made = 0;
    if (check(tenon_traces_load(once_in(2) ? nullptr : trace_path().c_str(), &made)) == TENON_OK)
      traces_.push_back(made);
    char* json = nullptr;
    if (check(tenon_explain(handle(traces_), &json)) == TENON_OK) tenon_string_free(json);
    if (check(tenon_plan(handle(traces_), below(3), nullptr, &json)) == TENON_OK)
      tenon_string_free(json);
    const std::uint64_t traces = handle(traces_);
    if (check(tenon_traces_destroy(traces)) == TENON_OK) forget(traces_, traces);
  }

  void call() {
    const std::uint64_t choice = below(100);
    if (choice < 3) return make_backend();
    if (choice < 8) return make_allocator();
    if (choice < 45) return allocate();
    if (choice < 75) return free();
    if (choice < 80) return export_block();
    if (choice < 84) return end_tensor();
    if (choice < 86) return make_observer();
    if (choice < 91) return destroy();
    if (choice < 95) return use_streams();
    if (choice < 99) return ask();
    if (once_in(5)) use_files();
  }

  // All that lives goes, in order, and each call succeeds.
  void end() {
    while (!tensors_.empty()) end_tensor();
    for (const auto& [data, block] : blocks_) {
      expect_whole(data, block);
      succeed(tenon_free(block.allocator, data));
    }
    for (const std::uint64_t traces : traces_) succeed(tenon_traces_destroy(traces));
    for (const std::uint64_t observer : observers_) succeed(tenon_observer_remove(observer));
    for (const std::uint64_t allocator : allocators_) succeed(tenon_allocator_destroy(allocator));
    tenon_backend host = 0;
    succeed(tenon_backend_host(&host));
    for (const std::uint64_t backend : backends_)
      require(tenon_backend_destroy(backend) ==
                  (backend == host ? TENON_INVALID_ARGUMENT : TENON_OK),
              "a backend that serves no allocator goes");
  }
  static void succeed(tenon_status status) {
    if (status != TENON_OK) require(false, tenon_last_error());
  }

  std::vector<std::uint64_t> backends_, allocators_, observers_, traces_, dead_;
  std::vector<std::uint32_t> streams_;
  std::map<void*, Block> blocks_;
  std::vector<DLManagedTensorVersioned*> tensors_;
  int events_ = 0;
};

bool c_calls(std::string_view bytes) {
  Caller(bytes).run();
  return true;
}

const Registered kCTargets("c_calls", c_calls);

}  // namespace
}  // namespace tenon::fuzz
