// Allocators, their blocks and observers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "objects.h"
#include "status.h"
#include "structures.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/file_bytes.h"

namespace tenon::c {

AllocatorObject::AllocatorObject(BackendObject& backend, const char* policy,
                                 const tenon_allocator_options* options)
    : Object(kKind), backend_(backend) {
  const auto given = complete_or_zero(options, "options");
  PolicyOptions made_with;
  if (given.conf != nullptr) made_with.conf = given.conf;
  made_with.limit_bytes = given.limit_bytes;
  made_with.page_bytes = given.page_bytes;
  if (given.plan_file != nullptr) {
    const FileBytes bytes(given.plan_file);
    plan_ = parse_plan(bytes.view(), given.plan_file);
    made_with.plan = &plan_;
  }
  const Policy& found = find_policy(&require(policy, "policy"));
  if (found.needs_plan && made_with.plan == nullptr)
    throw std::invalid_argument(
        fmt::format("the policy {} needs options.plan_file, which tenon plan -o writes", policy));
  allocator_ = make_policy(found.name, backend.backend(), made_with);
  backend_.add(*this);
}

void* AllocatorObject::allocate(std::uint64_t size_bytes, std::uint32_t stream) {
  DataPtr data = allocator_->allocate_on(size_bytes, backend_.stream(stream));
  if (data == nullptr) return nullptr;
  auto block = std::make_unique<Block>();
  const std::lock_guard lock(mutex_);
  if (stream != 0) streams_.insert(stream);
  void* const address = data.get();
  block->deleter = data.get_deleter();
  block->size_bytes = size_bytes;
  block->context = data.get_context();
  blocks_.insert(address, block.get());
  static_cast<void>(block.release());
  static_cast<void>(data.release_context());
  return address;
}

// Takes a block out of the books. Throws InvalidPointer, or std::invalid_argument when it is too
// small for what is wanted.
DataPtr AllocatorObject::take(void* data, std::uint64_t least_bytes) {
  const std::lock_guard lock(mutex_);
  const Block* const found = blocks_.find(data);
  if (found == nullptr)
    throw InvalidPointer(fmt::format(
        "{} is no block of this allocator: it was freed, exported, or never handed out", data));
  if (found->size_bytes < least_bytes)
    throw std::invalid_argument(fmt::format("the shape needs {} bytes, the block has {}",
                                            least_bytes, found->size_bytes));
  const std::unique_ptr<Block> block(blocks_.take(data));
  return DataPtr(data, block->context, block->deleter, allocator_->device());
}

void AllocatorObject::free(void* data) {
  if (data != nullptr) take(data, 0).clear();
}

void AllocatorObject::record_stream(void* data, std::uint32_t stream) {
  const Stream on = backend_.stream(stream);
  const std::lock_guard lock(mutex_);
  const Block* const found = blocks_.find(data);
  if (found == nullptr)
    throw InvalidPointer(fmt::format("{} is no block of this allocator", data));
  if (stream != 0) streams_.insert(stream);
  DataPtr view(data, found->context, found->deleter, allocator_->device());
  try {
    allocator_->record_stream(view, on);
  } catch (...) {
    static_cast<void>(view.release_context());
    throw;
  }
  static_cast<void>(view.release_context());
}

DataPtr AllocatorObject::export_block(void* data, std::uint64_t least_bytes) {
  DataPtr block = take(data, least_bytes);
  const std::lock_guard lock(mutex_);
  ++exported_;
  return block;
}

void AllocatorObject::exported_block_ended() {
  const std::lock_guard lock(mutex_);
  --exported_;
}

void AllocatorObject::observers_changed(int by) {
  const std::lock_guard lock(mutex_);
  observers_ += by;
}

void AllocatorObject::require_unused() const {
  const std::lock_guard lock(mutex_);
  if (blocks_.size() + exported_ != 0)
    throw InUse(fmt::format("{} blocks live, {} of them exported: free them first",
                            blocks_.size() + exported_, exported_));
  if (observers_ != 0)
    throw InUse(fmt::format("{} observers are on it: remove them first", observers_));
  if (observer_calls_ != 0)
    throw InUse("a function that observes it is being called: destroy it after that");
}

bool AllocatorObject::has_used(std::uint32_t stream) const {
  const std::lock_guard lock(mutex_);
  return streams_.contains(stream);
}

ObserverObject::ObserverObject(AllocatorObject& allocator, tenon_event_function function,
                               void* context)
    : Object(kKind), allocator_(allocator), function_(function), context_(context) {
  allocator_.allocator().observers().add(this);
  allocator_.observers_changed(1);
}

ObserverObject::~ObserverObject() {
  allocator_.allocator().observers().remove(this);
  allocator_.observers_changed(-1);
}

void ObserverObject::on_memory_event(const MemoryEventInfo& info) {
  static_assert(static_cast<int>(MemoryEvent::kAllocationFailed) == TENON_EVENT_ALLOCATION_FAILED);
  static_assert(static_cast<int>(MemoryEvent::kReleased) == TENON_EVENT_RELEASED);
  const tenon_event event = {static_cast<tenon_event_kind>(info.event), info.data, info.size_bytes,
                             info.stream.id};
  AllocatorObject& allocator = allocator_;  // the function may remove this observer
  allocator.observer_calls_changed(1);
  function_(context_, &event);
  allocator.observer_calls_changed(-1);
}

namespace {

AllocatorObject& find_allocator(tenon_allocator allocator) {
  return Handles::find<AllocatorObject>(allocator);
}

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

const char* tenon_policy_name(size_t index) {
  return index < policies().size() ? policies()[index].name.c_str() : nullptr;
}

const char* tenon_policy_summary(size_t index) {
  return index < policies().size() ? policies()[index].summary.c_str() : nullptr;
}

tenon_status tenon_allocator_create(tenon_backend backend, const char* policy,
                                    const tenon_allocator_options* options, tenon_allocator* out) {
  return guarded("tenon_allocator_create", [&] {
    require(out, "out");
    *out = Handles::add(std::make_unique<AllocatorObject>(Handles::find<BackendObject>(backend),
                                                          policy, options));
  });
}

tenon_status tenon_allocator_destroy(tenon_allocator allocator) {
  return guarded("tenon_allocator_destroy", [&] {
    find_allocator(allocator).require_unused();
    Handles::take<AllocatorObject>(allocator);
  });
}

tenon_status tenon_allocate(tenon_allocator allocator, uint64_t size_bytes, uint32_t stream,
                            void** out) {
  return guarded("tenon_allocate", [&] {
    require(out, "out");
    *out = find_allocator(allocator).allocate(size_bytes, stream);
  });
}

tenon_status tenon_free(tenon_allocator allocator, void* data) {
  return guarded("tenon_free", [&] { find_allocator(allocator).free(data); });
}

tenon_status tenon_record_stream(tenon_allocator allocator, void* data, uint32_t stream) {
  return guarded("tenon_record_stream",
                 [&] { find_allocator(allocator).record_stream(data, stream); });
}

tenon_status tenon_empty_cache(tenon_allocator allocator) {
  return guarded("tenon_empty_cache", [&] { find_allocator(allocator).allocator().empty_cache(); });
}

tenon_status tenon_allocator_statistics(tenon_allocator allocator, tenon_statistics* out) {
  return guarded("tenon_allocator_statistics", [&] {
    check_structure(require(out, "out"), "out");
    const AllocatorStats stats = find_allocator(allocator).allocator().stats();
    hand_over({.struct_bytes = 0,
               .blocks = stats.allocation[0].current,
               .requested_bytes = stats.requested_bytes[0].current,
               .requested_peak_bytes = stats.requested_bytes[0].peak,
               .allocated_bytes = stats.allocated_bytes[0].current,
               .allocated_peak_bytes = stats.allocated_bytes[0].peak,
               .reserved_bytes = stats.reserved_bytes[0].current,
               .reserved_peak_bytes = stats.reserved_bytes[0].peak,
               .allocations = stats.allocation[0].allocated,
               .retries = stats.num_alloc_retries,
               .out_of_memories = stats.num_ooms},
              *out);
  });
}

tenon_status tenon_allocator_statistics_json(tenon_allocator allocator, char** out) {
  return guarded("tenon_allocator_statistics_json", [&] {
    require(out, "out");
    nlohmann::ordered_json json;
    for (const auto& [name, value] : find_allocator(allocator).allocator().stats().named())
      json[name] = value;
    *out = copy_text(json.dump(2) + "\n");
  });
}

tenon_status tenon_reset_peaks(tenon_allocator allocator) {
  return guarded("tenon_reset_peaks",
                 [&] { find_allocator(allocator).allocator().reset_peak_stats(); });
}

tenon_status tenon_observer_add(tenon_allocator allocator, tenon_event_function function,
                                void* context, tenon_observer* out) {
  return guarded("tenon_observer_add", [&] {
    require(out, "out");
    AllocatorObject& object = find_allocator(allocator);
    if (function == nullptr) throw std::invalid_argument("function is null");
    *out = Handles::add(std::make_unique<ObserverObject>(object, function, context));
  });
}

tenon_status tenon_observer_remove(tenon_observer observer) {
  return guarded("tenon_observer_remove", [&] { Handles::take<ObserverObject>(observer); });
}
