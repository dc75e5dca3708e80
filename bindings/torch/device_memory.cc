#include "device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pytorch_streams.h"
#include "tenon/base/byte_size.h"

namespace tenon::torch {
namespace {

const char* state_name(BlockInfo::State state) {
  switch (state) {
    case BlockInfo::State::kActive:
      return "active_allocated";
    case BlockInfo::State::kPendingFree:
      return "active_pending_free";
    case BlockInfo::State::kInactive:
      break;
  }
  return "inactive";
}

PolicyOptions policy_options(const Settings& settings) {
  PolicyOptions options;
  options.conf = settings.conf;
  return options;  // the limit is the backend's, so that private pools come under it too
}

}  // namespace

DeviceMemory::DeviceMemory(CudaBackend& backend, const Settings& settings)
    : backend_(backend),
      settings_(settings),
      allocator_(make_policy(settings.policy, backend, policy_options(settings))) {
  if (settings.limit_bytes != 0) backend_.set_limit(settings.limit_bytes);
}

// PyTorch asks with the same few streams again and again. Requires: the stream is in hand.
Stream DeviceMemory::number_of(cu::Stream stream) {
  struct Last {  // one that lasts: Note [Borrowed streams]
    const CudaBackend* backend = nullptr;
    cu::Stream handle = nullptr;
    Stream number;
  };
  thread_local Last last;
  if (last.backend == &backend_ && last.handle == stream) return last.number;
  if (!lasts(stream, backend_.device().index)) return backend_.borrow_stream(stream);
  last = {&backend_, stream, backend_.adopt_stream(stream)};
  return last.number;
}

void* DeviceMemory::allocate(std::uint64_t size_bytes, cu::Stream stream) {
  if (size_bytes == 0) return nullptr;
  backend_.driver().require_same_process();  // what is cached here is the parent's
  const StreamInHand named(stream);
  const Stream on = number_of(stream);
  if (foreign_uses_.any_waiting()) [[unlikely]] foreign_uses_.give_back(false);
  std::shared_ptr<Pool> pool;
  if (open_pools_.load(std::memory_order_acquire) != 0) [[unlikely]] pool = pool_for(stream);
  DeviceAllocator& from = pool == nullptr ? *allocator_ : *pool->memory;
  DataPtr block = allocate_or_wait(from, size_bytes, on);
  if (pool != nullptr) ++pool->blocks;
  void* const data = block.get();
  const std::lock_guard lock(held_lock_);
  held_.insert(data, slab_.create(Held{data, block.get_context(), block.get_deleter(),
                                       pool.get(), false}));
  static_cast<void>(block.release_context());
  return data;
}

// Where memory is short, what other devices still use is waited for.
DataPtr DeviceMemory::allocate_or_wait(DeviceAllocator& allocator, std::uint64_t size_bytes,
                                       Stream stream) {
  try {
    return allocate_from(allocator, size_bytes, stream);
  } catch (const OutOfMemory&) {
    if (!foreign_uses_.any_waiting()) throw;
  }
  foreign_uses_.give_back(true);
  return allocate_from(allocator, size_bytes, stream);
}

// While another stream captures a graph, memory that may still be in use cannot be waited for: the
// request is out of memory, which a program may catch, and not an error of the device.
DataPtr DeviceMemory::allocate_from(DeviceAllocator& allocator, std::uint64_t size_bytes,
                                    Stream stream) {
  try {
    return allocator.allocate_on(size_bytes, stream);
  } catch (const CaptureRefusal& refusal) {
    const AllocatorStats stats = allocator.stats();
    OutOfMemoryDetails details;
    details.allocator = settings_.policy;
    details.device = to_string(backend_.device());
    details.requested_bytes = size_bytes;
    details.allocated_bytes = static_cast<std::uint64_t>(stats.allocated_bytes[0].current);
    details.reserved_bytes = static_cast<std::uint64_t>(stats.reserved_bytes[0].current);
    details.limit_bytes = most_bytes();
    details.advice = fmt::format("{}, so free memory could not be given back; free memory before "
                                 "the capture begins", refusal.what());
    throw OutOfMemory(std::move(details));
  }
}

bool DeviceMemory::free(void* data) {
  if (data == nullptr) return true;
  Held held;
  {
    const std::lock_guard lock(held_lock_);
    Held* found = held_.take(data);
    if (found == nullptr) return false;
    held = *found;
    slab_.destroy(found);
  }
  if (held.has_foreign_uses)
    foreign_uses_.free(data, [this, held] { give_back(held); });
  else
    give_back(held);
  return true;
}

void DeviceMemory::give_back(const Held& held) {
  held.deleter(held.context != nullptr ? held.context : held.data);
  if (held.pool != nullptr && --held.pool->blocks == 0) drop_if_over(held.pool);
}

bool DeviceMemory::record_stream(void* data, cu::Stream stream,
                                 const std::vector<DeviceMemory*>& all_devices) {
  if (data == nullptr) return true;
  Held held;
  {
    const std::lock_guard lock(held_lock_);
    const Held* found = held_.find(data);
    if (found == nullptr) return false;
    held = *found;
  }
  const StreamInHand named(stream);
  if (stream == nullptr) {
    for (DeviceMemory* other : all_devices)
      if (other != this) note_foreign_use(data, other->backend_, stream);
  } else if (const int index = backend_.device_of_stream(stream);
             index != backend_.device().index) {
    note_foreign_use(data, cuda_backend(index), stream);
    return true;
  }
  DataPtr block(held.data, held.context, held.deleter, backend_.device());
  struct Lend {  // the block stays PyTorch's, whatever is thrown
    DataPtr& block;
    ~Lend() { static_cast<void>(block.release_context()); }
  } const lend{block};
  DeviceAllocator& owner =
      held.pool == nullptr ? *allocator_ : static_cast<DeviceAllocator&>(*held.pool->memory);
  owner.record_stream(block, number_of(stream));
  return true;
}

// Requires: the stream is in hand.
void DeviceMemory::note_foreign_use(void* data, CudaBackend& other, cu::Stream stream) {
  const Stream number = lasts(stream, other.device().index) ? other.adopt_stream(stream)
                                                            : other.borrow_stream(stream);
  foreign_uses_.record(data, other, number);
  const std::lock_guard lock(held_lock_);
  if (Held* held = held_.find(data)) held->has_foreign_uses = true;
}

void* DeviceMemory::base_of(void* data, std::size_t* size_bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (const DeviceAllocator* allocator : allocators())
    for (const SegmentInfo& segment : allocator->snapshot())
      if (address - segment.address < segment.size_bytes) {
        if (size_bytes != nullptr) *size_bytes = segment.size_bytes;
        return reinterpret_cast<void*>(segment.address);
      }
  return nullptr;
}

void DeviceMemory::empty_cache() {
  if (foreign_uses_.any_waiting()) foreign_uses_.give_back(true);
  for (DeviceAllocator* allocator : allocators()) {
    if (open_pools_.load(std::memory_order_acquire) == 0)
      allocator->empty_cache();
    else
      ignore_refusal([&] { allocator->empty_cache(); });
  }
  drop_pools_that_are_over();  // when the device would not let them go
}

void DeviceMemory::set_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1))
    throw InvalidArgument(fmt::format("memory fraction {} is not from 0 to 1", fraction));
  const auto total = static_cast<double>(backend_.limits().recommended_working_set_bytes);
  // To the backend 0 means no limit; one byte refuses every request as well.
  const std::uint64_t limit = std::max<std::uint64_t>(static_cast<std::uint64_t>(fraction * total), 1);
  const std::lock_guard lock(pools_mutex_);
  fraction_ = fraction;
  backend_.set_limit(settings_.limit_bytes == 0 ? limit : std::min(limit, settings_.limit_bytes));
}

double DeviceMemory::fraction() const {
  const std::lock_guard lock(pools_mutex_);
  return fraction_;
}

// ------------------------------------------------------------------------------------------------
// Private pools

std::shared_ptr<DeviceMemory::Pool> DeviceMemory::find_pool(PoolId id) const {
  for (const auto& pool : pools_)
    if (pool->id == id) return pool;
  return nullptr;
}

std::shared_ptr<DeviceMemory::Pool> DeviceMemory::pool_for(cu::Stream stream) const {
  const std::lock_guard lock(pools_mutex_);
  for (const auto& pool : pools_)
    if (pool->filter && pool->filter(stream)) return pool;
  return nullptr;
}

// One more user of the pool, which is made if need be. Requires: pools_mutex_.
std::shared_ptr<DeviceMemory::Pool> DeviceMemory::use_pool(PoolId id) {
  auto pool = find_pool(id);
  if (pool == nullptr) {
    pool = std::make_shared<Pool>();
    pool->id = id;
    pool->memory = std::make_unique<PrivatePool>(
        backend_, [this] { ignore_refusal([this] { allocator_->empty_cache(); }); },
        settings_.shareable_pools ? PrivatePool::Made::kOfSegments : PrivatePool::Made::kOfPages);
    watch(*pool->memory);
    pools_.push_front(pool);
  } else if (pool->users == 0) {
    pool->memory->hold();  // blocks of its former life kept it
  }
  ++pool->users;
  return pool;
}

void DeviceMemory::retain_pool(PoolId id) {
  const std::lock_guard lock(pools_mutex_);
  use_pool(id);
}

void DeviceMemory::begin_pool(PoolId id, StreamFilter filter) {
  const std::lock_guard lock(pools_mutex_);
  if (const auto pool = find_pool(id); pool != nullptr && pool->filter)
    throw InvalidArgument(fmt::format("pool ({}, {}) is open already", id.first, id.second));
  const auto pool = use_pool(id);
  pool->filter = std::move(filter);
  ++open_pools_;
  backend_.expect_captures(+1);
  pools_.remove(pool);
  pools_.push_front(pool);
}

void DeviceMemory::end_pool(PoolId id) {
  const std::lock_guard lock(pools_mutex_);
  const auto pool = find_pool(id);
  if (pool == nullptr || !pool->filter)
    throw InvalidArgument(fmt::format("pool ({}, {}) is not open", id.first, id.second));
  pool->filter = nullptr;
  backend_.expect_captures(-1);
  if (--open_pools_ == 0) drop_pools_that_are_over();
}

void DeviceMemory::release_pool(PoolId id) {
  const std::lock_guard lock(pools_mutex_);
  const auto pool = find_pool(id);
  if (pool == nullptr || pool->users == 0)
    throw InvalidArgument(fmt::format("pool ({}, {}) is not in use", id.first, id.second));
  if (--pool->users > 0) return;
  ignore_refusal([&] { pool->memory->allow_release(); });
  drop_if_over(pool.get());
}

int DeviceMemory::pool_users(PoolId id) const {
  const std::lock_guard lock(pools_mutex_);
  const auto pool = find_pool(id);
  return pool == nullptr ? 0 : pool->users;
}

void DeviceMemory::drop_pools_that_are_over() {
  const std::lock_guard lock(pools_mutex_);
  for (const auto& pool : std::list<std::shared_ptr<Pool>>(pools_)) {
    if (pool->users == 0) ignore_refusal([&] { pool->memory->empty_cache(); });
    drop_if_over(pool.get());
  }
}

// A released pool ends with its last block; if the device is busy with a capture just then, later.
void DeviceMemory::drop_if_over(Pool* over) {
  const std::lock_guard lock(pools_mutex_);
  const auto it = std::find_if(pools_.begin(), pools_.end(),
                               [&](const auto& pool) { return pool.get() == over; });
  if (it == pools_.end() || over->users > 0 || over->filter || over->blocks != 0) return;
  ignore_refusal([&] { over->memory->empty_cache(); });
  if (over->memory->reserved_bytes() != 0) return;
  pools_.erase(it);
}

// ------------------------------------------------------------------------------------------------
// Accounts

std::vector<DeviceAllocator*> DeviceMemory::allocators() const {
  const std::lock_guard lock(pools_mutex_);
  std::vector<DeviceAllocator*> all = {allocator_.get()};
  for (const auto& pool : pools_) all.push_back(pool->memory.get());
  return all;
}

nlohmann::json DeviceMemory::stats() const {
  const std::lock_guard lock(pools_mutex_);
  AllocatorStats all = allocator_->stats();
  std::int64_t pooled = 0;
  std::int64_t pooled_in_use = 0;
  for (const auto& pool : pools_) {
    const AllocatorStats stats = pool->memory->stats();
    pooled += stats.reserved_bytes[0].current;
    pooled_in_use += stats.allocated_bytes[0].current;
    all += stats;
  }
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, value] : all.named()) out[name] = value;
  const DriverLedger ledger = backend_.ledger();
  out["private_pools"] = pools_.size();
  out["private_pools.reserved_bytes"] = pooled;
  out["private_pools.allocated_bytes"] = pooled_in_use;
  out["device.held_bytes"] = backend_.held_bytes();
  out["device.held_peak_bytes"] = backend_.held_peak_bytes();  // never reset
  out["device.total_bytes"] = backend_.memory().total_bytes;
  out["device.free_bytes"] = backend_.memory().free_bytes;
  out["driver.calls"] = ledger.memory_calls();
  out["driver.stall_ns"] = ledger.stall_ns;
  out["driver.moving_stall_ns"] = ledger.moving_stall_ns;
  return out;
}

void DeviceMemory::reset_peaks() {
  for (DeviceAllocator* allocator : allocators()) allocator->reset_peak_stats();
}

void DeviceMemory::add_segments(nlohmann::json& out, const DeviceAllocator& allocator,
                                PoolId id) const {
  for (const SegmentInfo& segment : allocator.snapshot()) {
    nlohmann::json blocks = nlohmann::json::array();
    std::uint64_t allocated = 0, active = 0, requested = 0;
    for (const BlockInfo& block : segment.blocks) {
      const bool in_use = block.state == BlockInfo::State::kActive;
      const bool is_active = block.state != BlockInfo::State::kInactive;
      allocated += in_use ? block.size_bytes : 0;
      active += is_active ? block.size_bytes : 0;
      requested += is_active ? block.requested_bytes : 0;
      const int stack = in_use && log_ != nullptr ? log_->stack_of(block.address) : 0;
      blocks.push_back({{"address", block.address},
                        {"size", block.size_bytes},
                        {"requested_size", is_active ? block.requested_bytes : 0},
                        {"state", state_name(block.state)},
                        {"stack", stack}});
    }
    const auto handle = reinterpret_cast<std::uintptr_t>(backend_.stream_handle(segment.stream));
    out.push_back({{"device", backend_.device().index},
                   {"address", segment.address},
                   {"total_size", segment.size_bytes},
                   {"allocated_size", allocated},
                   {"active_size", active},
                   {"requested_size", requested},
                   {"stream", handle},
                   {"segment_type", segment.small_pool ? "small" : "large"},
                   {"segment_pool_id", {id.first, id.second}},
                   {"is_expandable", segment.expandable},
                   {"frames", nlohmann::json::array()},
                   {"blocks", std::move(blocks)}});
  }
}

nlohmann::json DeviceMemory::snapshot() const {
  const std::lock_guard lock(pools_mutex_);
  nlohmann::json segments = nlohmann::json::array();
  add_segments(segments, *allocator_, {0, 0});
  for (const auto& pool : pools_) add_segments(segments, *pool->memory, pool->id);
  nlohmann::json trace = nlohmann::json::array();
  if (log_ != nullptr)
    for (const EventLog::Entry& entry : log_->entries()) {
      const auto handle = reinterpret_cast<std::uintptr_t>(backend_.stream_handle(entry.stream));
      trace.push_back({{"action", entry.action},
                       {"addr", entry.address},
                       {"size", entry.size_bytes},
                       {"stream", handle},
                       {"time_us", entry.time_us},
                       {"stack", entry.stack}});
    }
  return {{"segments", std::move(segments)}, {"trace", std::move(trace)}};
}

void DeviceMemory::watch(DeviceAllocator& allocator) {
  if (log_ != nullptr) allocator.observers().add(log_.get());
  if (recorder_ != nullptr) allocator.observers().add(recorder_.get());
}

void DeviceMemory::unwatch(DeviceAllocator& allocator) {
  if (log_ != nullptr) allocator.observers().remove(log_.get());
  if (recorder_ != nullptr) allocator.observers().remove(recorder_.get());
}

void DeviceMemory::log_events(std::size_t max_entries) {
  const std::lock_guard lock(pools_mutex_);
  for (DeviceAllocator* allocator : allocators()) unwatch(*allocator);
  log_.reset();
  const std::string policy = allocator_->name();
  const bool of_pages = policy == "stitched" || policy == "expandable";
  if (max_entries != 0)
    log_ = std::make_unique<EventLog>(
        max_entries, of_pages ? EventLog::Memory::kOfPages : EventLog::Memory::kOfSegments,
        [this] { return backend_.memory().free_bytes; });
  for (DeviceAllocator* allocator : allocators()) watch(*allocator);
}

void DeviceMemory::start_recording(const std::string& name) {
  const std::lock_guard lock(pools_mutex_);
  if (recorder_ != nullptr)
    throw InvalidArgument(
        fmt::format("{} is being recorded already", to_string(backend_.device())));
  for (DeviceAllocator* allocator : allocators()) unwatch(*allocator);
  recorder_ = std::make_unique<Recorder>(name);
  for (DeviceAllocator* allocator : allocators()) watch(*allocator);
}

Trace DeviceMemory::stop_recording() {
  const std::lock_guard lock(pools_mutex_);
  if (recorder_ == nullptr)
    throw InvalidArgument(fmt::format("{} is not being recorded", to_string(backend_.device())));
  for (DeviceAllocator* allocator : allocators()) unwatch(*allocator);
  Trace trace = recorder_->take();
  recorder_.reset();
  for (DeviceAllocator* allocator : allocators()) watch(*allocator);
  return trace;
}

}  // namespace tenon::torch
