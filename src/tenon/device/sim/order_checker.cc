#include "tenon/device/sim/order_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tenon {

// --- What lies where. Segments and handles are numbered from one counter by the device.

void OrderChecker::segment_allocated(const Segment& segment) {
  placements_[reinterpret_cast<std::uintptr_t>(segment.base)] =
      Placement{segment.size_bytes, segment.handle, true, {}};
  memory_[segment.handle].placements = 1;
}

void OrderChecker::segment_freed(const Segment& segment) {
  host_knows_everything();
  remove(placements_.find(reinterpret_cast<std::uintptr_t>(segment.base)));
}

void OrderChecker::mapped(std::uintptr_t address, PageHandle pages) {
  placements_[address] = Placement{pages.size_bytes, pages.id, false, {}};
  ++memory_[pages.id].placements;
}

void OrderChecker::access_set(std::uintptr_t address, std::uint64_t size_bytes) {
  for (auto it = placements_.find(address);
       it != placements_.end() && it->first < address + size_bytes; ++it)
    it->second.accessible = true;
}

void OrderChecker::unmapped(std::uintptr_t address) {
  const auto it = placements_.find(address);
  if (it == placements_.end()) return;
  for (std::size_t stream = 0; stream < it->second.last_access.size(); ++stream) {
    if (it->second.last_access[stream] <= component(host_clock_, stream)) continue;
    report(fmt::format("unmap in use: {:#x} ({} bytes) was unmapped while the host did not know "
                       "that stream {}'s work on it is finished",
                       address, it->second.size_bytes, stream));
  }
  remove(it);
}

void OrderChecker::remove(std::map<std::uintptr_t, Placement>::iterator placement) {
  if (placement == placements_.end()) return;
  Memory& memory = memory_[placement->second.memory];
  --memory.placements;
  // All later accesses are ordered after those that the host knows to be finished: drop these.
  for (auto it = memory.history.begin(); it != memory.history.end();) {
    std::erase_if(it->second.accesses, [&](const Access& a) { return host_knows_of(a); });
    it = it->second.accesses.empty() ? memory.history.erase(it) : std::next(it);
  }
  if (memory.placements == 0 && memory.history.empty()) memory_.erase(placement->second.memory);
  placements_.erase(placement);
}

// --- What is ordered with what.

void OrderChecker::recorded(Stream stream, Event event) { events_[event.id] = clock_of(stream); }

void OrderChecker::stream_waited(Stream stream, Event event) {
  join(clock_of(stream), events_[event.id]);
}

void OrderChecker::event_destroyed(Event event) { events_.erase(event.id); }

void OrderChecker::host_knows(Event event) { join(host_clock_, events_[event.id]); }

void OrderChecker::host_knows(Stream stream) { join(host_clock_, clock_of(stream)); }

void OrderChecker::host_knows_everything() {
  for (const Clock& clock : clocks_) join(host_clock_, clock);
}

// --- Accesses.

void OrderChecker::access(Stream stream, std::uintptr_t address, std::uint64_t size_bytes,
                          std::uint64_t owner_id) {
  Clock& clock = clock_of(stream);
  join(clock, host_clock_);
  const std::uint64_t time = component(clock, stream.id) + 1;
  raise(clock, stream.id, time);
  const Access access{owner_id, stream.id, time};
  const std::uintptr_t end = address + size_bytes;
  for (std::uintptr_t at = address; at < end;) {
    auto it = placements_.upper_bound(at);
    const bool found = it != placements_.begin() &&
                       at - std::prev(it)->first < std::prev(it)->second.size_bytes;
    if (!found || !std::prev(it)->second.accessible) {
      report(fmt::format("stray access: stream {} uses {:#x} for block {}, which {}", stream.id,
                         at, owner_id, found ? "lacks set_access" : "is not mapped"));
      return;
    }
    auto& [base, placement] = *std::prev(it);
    raise(placement.last_access, stream.id, time);
    const std::uintptr_t stop = std::min<std::uintptr_t>(end, base + placement.size_bytes);
    touch(memory_[placement.memory].history, at - base, stop - base, access, at);
    at = stop;
  }
}

void OrderChecker::touch(History& history, std::uint64_t begin, std::uint64_t end,
                         const Access& access, std::uintptr_t address) {
  auto it = split(history, begin);
  const auto last = split(history, end);
  auto previous = history.end();  // the piece before, when it belongs to this access too
  for (std::uint64_t at = begin; at < end;) {
    if (it == last || it->first > at) {  // bytes without a history
      const std::uint64_t stop = it == last ? end : it->first;
      it = history.emplace_hint(it, at, Piece{stop, {}});
    }
    compare(it->second, access, address + (at - begin), it->second.end - at);
    remember(it->second, access);
    at = it->second.end;
    if (previous != history.end() && previous->second.accesses == it->second.accesses) {
      previous->second.end = at;
      it = history.erase(it);
    } else {
      previous = it++;
    }
  }
}

// The first piece at or behind `offset`, after no piece reaches across it.
OrderChecker::History::iterator OrderChecker::split(History& history, std::uint64_t offset) {
  auto it = history.lower_bound(offset);
  if (it == history.begin()) return it;
  const auto before = std::prev(it);
  if (before->second.end <= offset) return it;
  it = history.emplace_hint(it, offset, before->second);
  before->second.end = offset;
  return it;
}

void OrderChecker::compare(const Piece& piece, const Access& access, std::uintptr_t address,
                           std::uint64_t size_bytes) {
  const Clock& clock = clocks_[access.stream];
  for (const Access& earlier : piece.accesses) {
    if (earlier.owner_id == access.owner_id) continue;
    if (earlier.time <= component(clock, earlier.stream)) continue;
    report(fmt::format("early reuse: stream {} uses {:#x} ({} bytes) for block {}, but nothing "
                       "orders it after stream {}'s use of the same memory for block {}",
                       access.stream, address, size_bytes, access.owner_id, earlier.stream,
                       earlier.owner_id));
  }
}

void OrderChecker::remember(Piece& piece, const Access& access) const {
  // Of this stream: drop all accesses except the last one for another owner.
  auto& accesses = piece.accesses;
  std::uint64_t last_other = 0;
  for (const Access& a : accesses)
    if (a.stream == access.stream && a.owner_id != access.owner_id)
      last_other = std::max(last_other, a.time);
  std::erase_if(accesses, [&](const Access& a) {
    return host_knows_of(a) || (a.stream == access.stream && a.time != last_other);
  });
  accesses.push_back(access);
}

// --- Clocks.

std::uint64_t OrderChecker::component(const Clock& clock, std::size_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

void OrderChecker::raise(Clock& clock, std::size_t stream, std::uint64_t time) {
  if (clock.size() <= stream) clock.resize(stream + 1);
  clock[stream] = std::max(clock[stream], time);
}

void OrderChecker::join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

OrderChecker::Clock& OrderChecker::clock_of(Stream stream) {
  if (clocks_.size() <= stream.id) clocks_.resize(stream.id + 1);
  return clocks_[stream.id];
}

bool OrderChecker::host_knows_of(const Access& access) const {
  return access.time <= component(host_clock_, access.stream);
}

void OrderChecker::report(std::string text) {
  if (violations_.size() < kMaxViolations) violations_.push_back(std::move(text));
}

}  // namespace tenon
