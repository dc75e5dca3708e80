#include "tenon/memory/growable/growable_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "tenon/base/byte_size.h"
#include "tenon/memory/allocator.h"

namespace tenon {
namespace {

AddressRange reserve(const PagePool& pool, std::uint64_t most_bytes) {
  if (most_bytes == 0) throw InvalidArgument("growable buffer: 0 bytes to reserve; give the most");
  const std::uint64_t page = pool.page_bytes();
  const std::uint64_t pages = most_bytes / page + (most_bytes % page != 0 ? 1 : 0);
  std::uint64_t bytes = 0;
  const bool too_many = __builtin_mul_overflow(pages, page, &bytes);
  const auto range = too_many ? std::nullopt : pool.backend().reserve_address(bytes);
  if (!range)
    raise<DeviceError>("growable buffer: {} has no addresses for {}; reserve less",
                       to_string(pool.backend().device()), format_byte_size(most_bytes));
  return *range;
}

std::shared_ptr<PagePool> checked(std::shared_ptr<PagePool> pool) {
  if (pool == nullptr)
    throw InvalidArgument("growable buffer: its pool of pages is null; PagePool::make makes one");
  return pool;
}

Stream on_device(Stream stream, const Backend& backend) {
  return stream == Stream{} ? Stream{backend.device(), 0} : stream;
}

}  // namespace

GrowableBuffer::GrowableBuffer(std::shared_ptr<PagePool> pool, std::uint64_t most_bytes,
                               Stream stream)
    : pool_(checked(std::move(pool))),
      backend_(pool_->backend()),
      stream_(on_device(stream, backend_)),
      range_(reserve(*pool_, most_bytes)) {
  try {
    add_user(stream_);
    pool_->enter(this);
  } catch (...) {
    ignore_refusal([&] { backend_.release_address(range_); });
    throw;
  }
}

GrowableBuffer::~GrowableBuffer() {
  pool_->leave(this);
  change_pages(std::unique_lock(mutex_), [&] {
    for (const auto& user : users_) ignore_refusal([&] { backend_.synchronize(user->stream()); });
    while (!pages_.empty()) {
      const std::uint64_t before = pages_.size();
      ignore_refusal([&] { unmap_from(before - 1); });
      if (pages_.size() == before) pages_.pop_back();  // it stays mapped
    }
  });
  ignore_refusal([&] { backend_.release_address(range_); });
}

// Under the mutex; calls observers with the added or removed pages after it is released.
template <typename Change>
void GrowableBuffer::change_pages(std::unique_lock<std::mutex> lock, Change&& change) {
  const std::uint64_t before = pages_.size();
  std::exception_ptr error;
  try {
    change();
  } catch (...) {
    error = std::current_exception();
  }
  const std::uint64_t after = pages_.size();
  lock.unlock();
  report(before, after);
  if (error) std::rethrow_exception(error);
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
    raise<InvalidArgument>("growable buffer: {} to {} of {} reserved; reserve more when it is made",
                           what, format_byte_size(bytes), format_byte_size(reserved()));
}

void GrowableBuffer::resize(std::uint64_t size_bytes) {
  if (size_bytes > size_bytes_ && size_bytes <= committed()) {
    size_bytes_ = size_bytes;
    return;
  }
  check_reach(size_bytes, "resize");
  const std::uint64_t pages = pages_for(size_bytes);
  change_pages(std::unique_lock(mutex_), [&] {
    const bool shrinks = size_bytes < size_bytes_;
    if (shrinks)
      retire_from(pages);
    else
      map_until(pages);
    size_bytes_ = size_bytes;
    if (shrinks && work_is_over(false)) unmap_from(wanted_pages_);
  });
}

void GrowableBuffer::commit(std::uint64_t size_bytes) {
  check_reach(size_bytes, "commit");
  change_pages(std::unique_lock(mutex_), [&] { map_until(pages_for(size_bytes)); });
}

std::uint64_t GrowableBuffer::give_back(std::unique_lock<std::mutex> lock, bool wait) {
  std::uint64_t pages = 0;
  change_pages(std::move(lock), [&] {
    const std::uint64_t before = pages_.size();
    if (before == wanted_pages_ || !work_is_over(wait)) return;
    unmap_from(wanted_pages_);
    pages = before - pages_.size();
  });
  return pages * pool_->page_bytes();
}

std::uint64_t GrowableBuffer::give_back(bool wait) {
  return give_back(std::unique_lock(mutex_), wait);
}

std::uint64_t GrowableBuffer::try_give_back() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? give_back(std::move(lock), false) : 0;
}

std::uint64_t GrowableBuffer::left_bytes() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? (pages_.size() - wanted_pages_) * pool_->page_bytes() : 0;
}

void GrowableBuffer::record_stream(Stream stream) {
  if (stream.device != backend_.device())
    raise<InvalidArgument>("record_stream: {} does not belong to {}", to_string(stream),
                           to_string(backend_.device()));
  const std::lock_guard lock(mutex_);
  for (const auto& user : users_)
    if (user->stream() == stream) return;
  add_user(stream);
}

void GrowableBuffer::add_user(Stream stream) {
  users_.push_back(std::make_unique<Completion>(backend_, stream, 1));
}

void GrowableBuffer::refuse(const char* call, std::uint64_t bytes) const {
  refuse_memory("growable buffer", backend_.device(), bytes,
                fmt::format("the driver cannot {} another page", call));
}

void GrowableBuffer::map_next() {
  const PageHandle handle = pool_->take(this);
  try {
    if (!backend_.map(range_.base + pages_.size() * pool_->page_bytes(), handle))
      refuse("map", (pages_.size() + 1) * pool_->page_bytes());
  } catch (...) {
    pool_->give(handle);
    throw;
  }
  pages_.push_back(handle);
}

// Retired pages that are still mapped serve again as they are.
void GrowableBuffer::map_until(std::uint64_t pages) {
  const std::uint64_t page = pool_->page_bytes();
  const std::uint64_t first = pages_.size();
  if (pages > open_pages_) {
    pages_.reserve(pages);
    try {
      while (pages_.size() < pages) map_next();
      if (!backend_.set_access(range_.base + open_pages_ * page, (pages - open_pages_) * page))
        refuse("open", pages * page);
    } catch (...) {
      ignore_refusal([&] { unmap_from(first); });
      throw;
    }
    open_pages_ = pages;
  }
  wanted_pages_ = std::max(wanted_pages_, pages);
  committed_bytes_.store(wanted_pages_ * page, std::memory_order_release);
}

// An event of an earlier call is before the new one on the same stream, which replaces it.
void GrowableBuffer::retire_from(std::uint64_t pages) {
  if (pages >= wanted_pages_) return;
  for (const auto& user : users_) {
    user->advance();
    user->record();
  }
  wanted_pages_ = pages;
  committed_bytes_.store(pages * pool_->page_bytes(), std::memory_order_release);
}

bool GrowableBuffer::work_is_over(bool wait) {
  for (const auto& user : users_) {
    if (wait) user->wait(user->now());
    if (user->settled() < user->now()) return false;
  }
  return true;
}

void GrowableBuffer::unmap_from(std::uint64_t pages) {
  while (pages_.size() > pages) {
    const PageHandle handle = pages_.back();
    backend_.unmap(range_.base + (pages_.size() - 1) * pool_->page_bytes(), handle);
    pages_.pop_back();
    open_pages_ = std::min<std::uint64_t>(open_pages_, pages_.size());
    pool_->give(handle);
  }
}

}  // namespace tenon
