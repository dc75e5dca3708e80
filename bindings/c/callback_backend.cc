#include "callback_backend.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "tenon/base/align.h"

namespace tenon::c {
namespace {

const tenon_device_functions& checked(const tenon_device_functions& f) {
  const auto refuse = [](const char* field, const char* reason) {
    throw InvalidArgument(fmt::format("functions.{} {}", field, reason));
  };
  if (f.name == nullptr) refuse("name", "is null");
  if (f.allocate == nullptr) refuse("allocate", "is null");
  if (f.release == nullptr) refuse("release", "is null");
  if (f.total_bytes == 0) refuse("total_bytes", "is 0");
  if (!std::has_single_bit(f.alignment)) refuse("alignment", "is no power of two");
  if (f.page_granularity != 0 && !std::has_single_bit(f.page_granularity))
    refuse("page_granularity", "is no power of two");
  const bool all = f.reserve_address != nullptr && f.release_address != nullptr &&
                   f.create_pages != nullptr && f.release_pages != nullptr && f.map != nullptr &&
                   f.unmap != nullptr;
  if (f.page_granularity != 0 && !all)
    refuse("page_granularity", "is not 0, and a function of virtual memory is null");
  if (f.host_can_reach == 0 && (f.copy == nullptr || f.fill == nullptr))
    refuse("copy", "and fill are needed where the host cannot reach the memory");
  return f;
}

std::optional<tenon_stream_functions> checked(const tenon_stream_functions* streams,
                                              const tenon_device_functions& f) {
  if (streams == nullptr) return std::nullopt;
  if (streams->record == nullptr || streams->is_done == nullptr || streams->wait == nullptr ||
      streams->stream_wait == nullptr || streams->release_event == nullptr)
    throw InvalidArgument("streams: all five functions are needed, and one is null");
  if (f.synchronize == nullptr)
    throw InvalidArgument("functions.synchronize is null: a device with streams needs it");
  return *streams;
}

// A refusal of wrong arguments, so that it is known whose they are.
[[noreturn]] void blame(const std::string& name, const std::string& what) {
  throw DeviceError(fmt::format("{}: {}", name, what));
}

}  // namespace

CallbackBackend::CallbackBackend(const tenon_device_functions& functions,
                                 const tenon_stream_functions* streams)
    : functions_(checked(functions)),
      queues_(checked(streams, functions)),
      name_(functions.name),
      device_{register_device_type(name_), 0},
      table_(functions.page_granularity, functions.can_map_twice != 0),
      streams_(device_, 0) {
  limits_.alignment = functions_.alignment;
  limits_.page_granularity = functions_.page_granularity;
  limits_.has_virtual_memory = functions_.page_granularity != 0;
  limits_.can_map_twice = limits_.has_virtual_memory && functions_.can_map_twice != 0;
  limits_.recommended_working_set_bytes = functions_.total_bytes;
  limits_.unified = functions_.host_can_reach != 0;
  limits_.has_streams = queues_.has_value();
}

// What an allocator could not give back.
CallbackBackend::~CallbackBackend() {
  if (queues_) functions_.synchronize(functions_.context);
  for (const auto& [id, event] : events_) queues_->release_event(functions_.context, event);
  table_.for_each_accessible_mapping([&](std::uintptr_t address, PageHandle pages) {
    functions_.unmap(functions_.context, address, table_.backing("~CallbackBackend", pages),
                     pages.size_bytes);
  });
  table_.for_each_range([&](AddressRange range) {
    functions_.release_address(functions_.context, range.base, range.size_bytes);
  });
  table_.for_each_segment([&](const Segment& segment) {
    functions_.release(functions_.context, segment.base, segment.size_bytes);
  });
}

BackendMemory CallbackBackend::memory() const {
  const std::lock_guard lock(mutex_);
  return {functions_.total_bytes, functions_.total_bytes - used_bytes_};
}

std::optional<Segment> CallbackBackend::allocate_segment(std::uint64_t size_bytes,
                                                         MemoryKind kind) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kAllocate);
  table_.require_segment_size(size_bytes);
  if (!has_room(size_bytes)) return std::nullopt;
  const std::uint64_t rounded = align_up(size_bytes, limits_.alignment);
  if (!has_room(rounded)) return std::nullopt;
  void* const base = functions_.allocate(functions_.context, rounded);
  if (base == nullptr) return std::nullopt;
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  if (!is_aligned(address, limits_.alignment) || address + rounded < address) {
    functions_.release(functions_.context, base, rounded);
    blame(name_, fmt::format("allocate({}) returned {}, which is no multiple of {}", rounded, base,
                             limits_.alignment));
  }
  Segment segment;
  segment.base = base;
  segment.host = limits_.unified ? base : nullptr;
  segment.size_bytes = rounded;
  segment.kind = kind;
  segment.handle = table_.add_segment(address, rounded);
  used_bytes_ += rounded;
  return segment;
}

void CallbackBackend::free_segment(const Segment& segment) {
  {
    const std::lock_guard lock(mutex_);
    count(DriverCall::kFree);
    table_.require_segment(segment);
  }
  if (queues_) finish_all();
  const std::lock_guard lock(mutex_);
  table_.require_segment(segment);  // it may be another thread's by now
  table_.remove_segment(segment);
  used_bytes_ -= segment.size_bytes;
  functions_.release(functions_.context, segment.base, segment.size_bytes);
}

void CallbackBackend::require_virtual_memory(const char* call) const {
  if (!limits_.has_virtual_memory)
    blame(name_, fmt::format("{}: this device has no virtual memory", call));
}

std::optional<AddressRange> CallbackBackend::reserve_address(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kReserveAddress);
  require_virtual_memory("reserve_address");
  table_.require_range_size(size_bytes);
  const std::uint64_t base = functions_.reserve_address(functions_.context, size_bytes);
  if (base == 0) return std::nullopt;
  if (!is_aligned(base, limits_.page_granularity) || base + size_bytes < base) {
    functions_.release_address(functions_.context, base, size_bytes);
    blame(name_, fmt::format("reserve_address({}) returned {:#x}, which is no multiple of {}",
                             size_bytes, base, limits_.page_granularity));
  }
  table_.add_range({base, size_bytes});
  return AddressRange{base, size_bytes};
}

void CallbackBackend::release_address(AddressRange range) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kReleaseAddress);
  require_virtual_memory("release_address");
  table_.require_empty_range(range);
  table_.remove_range(range);
  functions_.release_address(functions_.context, range.base, range.size_bytes);
}

std::optional<PageHandle> CallbackBackend::create_pages(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kCreate);
  require_virtual_memory("create_pages");
  table_.require_pages_size(size_bytes);
  if (!has_room(size_bytes)) return std::nullopt;
  const std::uint64_t pages = functions_.create_pages(functions_.context, size_bytes);
  if (pages == 0) return std::nullopt;
  used_bytes_ += size_bytes;
  return table_.add_pages(size_bytes, pages);
}

void CallbackBackend::drop(const std::optional<AddressTable::Dropped>& dropped) {
  if (!dropped) return;
  used_bytes_ -= dropped->size_bytes;
  functions_.release_pages(functions_.context, dropped->backing, dropped->size_bytes);
}

void CallbackBackend::release_pages(PageHandle pages) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kRelease);
  require_virtual_memory("release_pages");
  drop(table_.release_pages(pages));
}

bool CallbackBackend::map(std::uintptr_t address, PageHandle pages) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kMap);
  require_virtual_memory("map");
  table_.require_can_map(address, pages);
  const std::uint64_t backing = table_.backing("map", pages);
  if (functions_.map(functions_.context, address, backing, pages.size_bytes) == 0) return false;
  table_.add_mapping(address, pages);
  return true;
}

// The device's map has done it.
bool CallbackBackend::set_access(std::uintptr_t address, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kSetAccess);
  require_virtual_memory("set_access");
  table_.handles_in(address, size_bytes);  // throws
  table_.set_accessible(address, size_bytes);
  return true;
}

void CallbackBackend::unmap(std::uintptr_t address, PageHandle pages) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kUnmap);
  require_virtual_memory("unmap");
  table_.require_mapped(address, pages);
  const std::uint64_t backing = table_.backing("unmap", pages);
  functions_.unmap(functions_.context, address, backing, pages.size_bytes);
  drop(table_.remove_mapping(address));
}

void CallbackBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.finish_ns("copy", stream);  // throws
    if (size_bytes == 0) return;
    const bool dest_is_ours = table_.require_accessible("copy to", dest, size_bytes);
    const bool src_is_ours = table_.require_accessible("copy from", src, size_bytes);
    if (!dest_is_ours && !src_is_ours)
      blame(name_, fmt::format("copy({}, {}, {} bytes): neither address is the device's", dest,
                               src, size_bytes));
  }
  if (queues_) finish("copy", stream);
  if (functions_.copy != nullptr)
    functions_.copy(functions_.context, dest, src, size_bytes);
  else
    std::memmove(dest, src, size_bytes);
}

void CallbackBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes,
                           Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.finish_ns("fill", stream);  // throws
    if (size_bytes == 0) return;
    if (!table_.require_accessible("fill", dest, size_bytes))
      blame(name_, fmt::format("fill({}, {} bytes): the address is not the device's", dest,
                               size_bytes));
  }
  if (queues_) finish("fill", stream);
  if (functions_.fill != nullptr)
    functions_.fill(functions_.context, dest, value, size_bytes);
  else
    std::memset(dest, value, size_bytes);
}

Stream CallbackBackend::create_stream() {
  const std::lock_guard lock(mutex_);
  return streams_.create_stream();
}
void CallbackBackend::destroy_stream(Stream stream) {
  const std::lock_guard lock(mutex_);
  streams_.destroy_stream(stream);
}
Event CallbackBackend::record(Stream stream) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kEventRecord);
  const Event event = streams_.record(stream);
  if (!queues_) return event;
  const std::uint64_t made = queues_->record(functions_.context, stream.id);
  if (made == 0) {
    streams_.destroy_event(event);
    blame(name_, fmt::format("record({}) returned 0", to_string(stream)));
  }
  events_[event.id] = made;
  return event;
}

// The device's own. Throws DeviceError where there is none.
std::uint64_t CallbackBackend::event_of(const char* call, Event event) const {
  streams_.finish_ns(call, event);  // throws
  return queues_ ? events_.at(event.id) : 0;
}

bool CallbackBackend::query(Event event) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kEventQuery);
  const std::uint64_t own = event_of("query", event);
  return !queues_ || queues_->is_done(functions_.context, own) != 0;
}

void CallbackBackend::wait(Event event) {
  std::uint64_t own = 0;
  {
    const std::lock_guard lock(mutex_);
    own = event_of("wait", event);
  }
  if (queues_) queues_->wait(functions_.context, own);
}

void CallbackBackend::stream_wait(Stream stream, Event event) {
  const std::lock_guard lock(mutex_);
  count(DriverCall::kStreamWait);
  streams_.stream_wait(stream, event);  // throws
  if (queues_)
    queues_->stream_wait(functions_.context, stream.id, event_of("stream_wait", event));
}

void CallbackBackend::destroy_event(Event event) {
  const std::lock_guard lock(mutex_);
  streams_.destroy_event(event);
  const auto found = events_.find(event.id);
  if (found == events_.end()) return;
  queues_->release_event(functions_.context, found->second);
  events_.erase(found);
}

void CallbackBackend::finish(const char* call, Stream stream) {
  std::uint64_t own = 0;
  {
    const std::lock_guard lock(mutex_);
    own = queues_->record(functions_.context, stream.id);
  }
  if (own == 0)
    blame(name_, fmt::format("{}: record({}) returned 0", call, to_string(stream)));
  queues_->wait(functions_.context, own);
  queues_->release_event(functions_.context, own);
}

void CallbackBackend::finish_all() {
  if (functions_.synchronize != nullptr) functions_.synchronize(functions_.context);
}

void CallbackBackend::synchronize(Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.finish_ns("synchronize", stream);  // throws
  }
  if (queues_) return finish("synchronize", stream);
  finish_all();
}

void CallbackBackend::synchronize() { finish_all(); }

DriverLedger CallbackBackend::ledger() const {
  const std::lock_guard lock(mutex_);
  return ledger_;
}

}  // namespace tenon::c
