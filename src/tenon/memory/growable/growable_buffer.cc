#include "tenon/memory/growable/growable_buffer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

AddressRange reserve(const PagePool& pool, std::uint64_t most_bytes) {
  if (most_bytes == 0) throw InvalidArgument("growable buffer: 0 bytes to reserve; give the most");
  const std::uint64_t page = pool.page_bytes();
  const auto range = pool.backend().reserve_address((most_bytes + page - 1) / page * page);
  if (!range)
    throw DeviceError(fmt::format("growable buffer: {} has no addresses for {}; reserve less",
                                  to_string(pool.backend().device()),
                                  format_byte_size(most_bytes)));
  return *range;
}

Stream on_device(Stream stream, const Backend& backend) {
  return stream == Stream{} ? Stream{backend.device(), 0} : stream;
}

}  // namespace

GrowableBuffer::GrowableBuffer(std::shared_ptr<PagePool> pool, std::uint64_t most_bytes,
                               Stream stream)
    : pool_(std::move(pool)),
      backend_(pool_->backend()),
      stream_(on_device(stream, backend_)),
      range_(reserve(*pool_, most_bytes)),
      users_{stream_} {}

GrowableBuffer::~GrowableBuffer() {
  change_pages([&] {
    ignore_refusal([&] {
      for (const Stream user : users_) backend_.synchronize(user);
    });
    ignore_refusal([&] { forget_events(); });
    ignore_refusal([&] { unmap_from(0); });
  });
  ignore_refusal([&] { backend_.release_address(range_); });
}

// Under the mutex; calls observers with the added or removed pages after it is released.
template <typename Change>
void GrowableBuffer::change_pages(Change&& change) {
  std::unique_lock lock(mutex_);
  const std::uint64_t before = pages_.size();
  try {
    change();
  } catch (...) {
    const std::uint64_t after = pages_.size();
    lock.unlock();
    report(before, after);
    throw;
  }
  const std::uint64_t after = pages_.size();
  lock.unlock();
  report(before, after);
}

void GrowableBuffer::report(std::uint64_t before, std::uint64_t after) {
  ObserverList& observers = pool_->observers();
  if (observers.empty() || before == after) return;
  const TagGuard tag({nullptr, current_tag().call_site != nullptr ? nullptr : "growable buffer"});
  const std::uint64_t page = pool_->page_bytes();
  for (std::uint64_t i = std::min(before, after); i < std::max(before, after); ++i)
    observers.report(after > before ? MemoryEvent::kAllocated : MemoryEvent::kFreed,
                     reinterpret_cast<void*>(range_.base + i * page), page, stream_);
}

void GrowableBuffer::check_reach(std::uint64_t bytes, const char* what) const {
  if (bytes > reserved())
    throw InvalidArgument(fmt::format(
        "growable buffer: {} to {} of {} reserved; reserve more when it is made", what,
        format_byte_size(bytes), format_byte_size(reserved())));
}

void GrowableBuffer::resize(std::uint64_t size_bytes) {
  if (size_bytes > size_bytes_ && size_bytes <= committed()) {
    size_bytes_ = size_bytes;
    return;
  }
  check_reach(size_bytes, "resize");
  const std::uint64_t pages = pages_for(size_bytes);
  change_pages([&] {
    if (size_bytes < size_bytes_) {
      retire_from(pages);
      if (work_is_over(false)) unmap_from(wanted_pages_);
    } else {
      map_until(pages);
    }
  });
  size_bytes_ = size_bytes;
}

void GrowableBuffer::commit(std::uint64_t size_bytes) {
  check_reach(size_bytes, "commit");
  change_pages([&] { map_until(pages_for(size_bytes)); });
}

std::uint64_t GrowableBuffer::give_back(bool wait) {
  std::uint64_t pages = 0;
  change_pages([&] {
    const std::uint64_t before = pages_.size();
    if (before == wanted_pages_ || !work_is_over(wait)) return;
    unmap_from(wanted_pages_);
    pages = before - pages_.size();
  });
  return pages * pool_->page_bytes();
}

void GrowableBuffer::record_stream(Stream stream) {
  if (stream.device != backend_.device())
    throw InvalidArgument(fmt::format("record_stream: {} does not belong to {}", to_string(stream),
                                      to_string(backend_.device())));
  const std::lock_guard lock(mutex_);
  if (std::find(users_.begin(), users_.end(), stream) == users_.end()) users_.push_back(stream);
}

void GrowableBuffer::refuse(const char* call, std::uint64_t bytes) const {
  OutOfMemoryDetails details;
  details.allocator = "growable buffer";
  details.device = to_string(backend_.device());
  details.requested_bytes = bytes;
  details.advice = fmt::format("the driver cannot {} another page", call);
  throw OutOfMemory(std::move(details));
}

// Retired pages that are still mapped serve again as they are.
void GrowableBuffer::map_until(std::uint64_t pages) {
  const std::uint64_t page = pool_->page_bytes();
  const std::uint64_t first = pages_.size();
  if (pages > first) {
    pages_.reserve(pages);
    try {
      while (pages_.size() < pages) {
        const PageHandle handle = pool_->take();
        if (!backend_.map(range_.base + pages_.size() * page, handle)) {
          pool_->give(handle);
          refuse("map", pages * page);
        }
        pages_.push_back(handle);
      }
      if (!backend_.set_access(range_.base + first * page, (pages - first) * page))
        refuse("open", pages * page);
    } catch (...) {
      unmap_from(first);
      throw;
    }
  }
  wanted_pages_ = std::max(wanted_pages_, pages);
  committed_bytes_.store(wanted_pages_ * page, std::memory_order_release);
}

void GrowableBuffer::retire_from(std::uint64_t pages) {
  if (pages >= wanted_pages_) return;
  wanted_pages_ = pages;
  committed_bytes_.store(pages * pool_->page_bytes(), std::memory_order_release);
  forget_events();
  for (const Stream user : users_) {
    events_.reserve(events_.size() + 1);
    events_.push_back(backend_.record(user));
  }
}

bool GrowableBuffer::work_is_over(bool wait) {
  for (const Event event : events_) {
    if (wait)
      backend_.wait(event);
    else if (!backend_.query(event))
      return false;
  }
  forget_events();
  return true;
}

void GrowableBuffer::unmap_from(std::uint64_t pages) {
  while (pages_.size() > pages) {
    const PageHandle handle = pages_.back();
    backend_.unmap(range_.base + (pages_.size() - 1) * pool_->page_bytes(), handle);
    pages_.pop_back();
    pool_->give(handle);
  }
}

void GrowableBuffer::forget_events() {
  while (!events_.empty()) {
    backend_.destroy_event(events_.back());
    events_.pop_back();
  }
}

}  // namespace tenon
