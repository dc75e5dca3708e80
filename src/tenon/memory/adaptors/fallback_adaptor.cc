#include "tenon/memory/adaptors/fallback_adaptor.h"

namespace tenon {

ObserverRelay::ObserverRelay(DeviceAllocator& from, DeviceAllocator& to) : from_(from), to_(to) {
  if (from.device() != to.device())
    raise<InvalidArgument>("a fallback serves one device, not {} and {}", to_string(to.device()),
                           to_string(from.device()));
  // Two adaptors may share one upstream, and so its observers.
  if (&from.observers() == &to.observers()) return;
  from.observers().share_lock(to.observers());
  from.observers().add(this);
}

ObserverRelay::~ObserverRelay() { from_.observers().remove(this); }

void ObserverRelay::on_memory_event(const MemoryEventInfo& info) {
  to_.observers().report(info.event, info.data, info.size_bytes, info.stream);
}

void throw_with_bytes_of(const DeviceAllocator& first, const OutOfMemory& error) {
  const AllocatorStats stats = first.stats();
  OutOfMemoryDetails details = error.details();
  details.allocated_bytes += static_cast<std::uint64_t>(stats.allocated_bytes[0].current);
  details.reserved_bytes += static_cast<std::uint64_t>(stats.reserved_bytes[0].current);
  throw OutOfMemory(std::move(details));
}

}  // namespace tenon
