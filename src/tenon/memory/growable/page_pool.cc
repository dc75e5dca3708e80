#include "tenon/memory/growable/page_pool.h"

#include "tenon/base/byte_size.h"
#include "tenon/memory/growable/growable_buffer.h"

namespace tenon {
namespace {

std::uint64_t checked_page(const Backend& backend, std::uint64_t page_bytes) {
  const BackendLimits& limits = backend.limits();
  if (!limits.has_virtual_memory)
    raise<InvalidArgument>(
        "page pool: {} has no virtual memory; take a pool of segments (policy pool)",
        to_string(backend.device()));
  if (page_bytes == 0) return limits.page_granularity;
  if (page_bytes % limits.page_granularity != 0)
    raise<InvalidArgument>("page pool: pages of {} are no multiple of {}'s {}",
                           format_byte_size(page_bytes), to_string(backend.device()),
                           format_byte_size(limits.page_granularity));
  return page_bytes;
}

}  // namespace

std::shared_ptr<PagePool> PagePool::make(Backend& backend, std::uint64_t page_bytes,
                                         std::uint64_t limit_bytes) {
  return std::shared_ptr<PagePool>(new PagePool(backend, page_bytes, limit_bytes));
}

PagePool::PagePool(Backend& backend, std::uint64_t page_bytes, std::uint64_t limit_bytes)
    : backend_(backend),
      page_bytes_(checked_page(backend, page_bytes)),
      limit_bytes_(limit_bytes),
      enrolment_(IdleOrigin::driver(backend), *this) {}

PagePool::~PagePool() {
  enrolment_.end();
  for (const PageHandle page : idle_) ignore_refusal([&] { backend_.release_pages(page); });
}

std::optional<PageHandle> PagePool::try_create(Shortage* shortage) {
  std::unique_lock lock(mutex_);
  shortage->of_driver = limit_bytes_ == 0 || (held_ + 1) * page_bytes_ <= limit_bytes_;
  if (!shortage->of_driver) return std::nullopt;
  if (idle_.capacity() <= held_) idle_.reserve(2 * held_ + 1);  // give() must not fail
  ++held_;
  lock.unlock();
  std::optional<PageHandle> made;
  try {
    made = backend_.create_pages(page_bytes_);
  } catch (...) {
    lock.lock();
    --held_;
    throw;
  }
  lock.lock();
  if (made)
    ++created_;
  else
    --held_;
  return made;
}

PageHandle PagePool::create(GrowableBuffer* asker) {
  Shortage shortage{.place = {backend_.device(), &backend_}, .self = this};
  if (const auto page = try_create(&shortage)) return *page;
  if (collect_left_pages(asker))
    if (const auto page = take_idle()) return *page;
  if (reclaim_idle(shortage))
    if (const auto page = try_create(&shortage)) return *page;
  const PagePoolStats now = stats();
  const std::uint64_t in_use = now.pages_in_use * page_bytes_;
  throw OutOfMemory({.allocator = "page pool",
                     .device = to_string(backend_.device()),
                     .requested_bytes = page_bytes_,
                     .allocated_bytes = in_use,
                     .reserved_bytes = in_use + now.pages_idle * page_bytes_,
                     .limit_bytes = limit_bytes_ != 0 ? limit_bytes_ : backend_.total_bytes(),
                     .idle = idle_holders(shortage),
                     .advice = "shrink other buffers of the pool, or let one sleep"});
}

std::optional<PageHandle> PagePool::take_idle() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::nullopt;
  const PageHandle page = idle_.back();
  idle_.pop_back();
  return page;
}

PageHandle PagePool::take(GrowableBuffer* asker) {
  const auto idle = take_idle();
  return idle ? *idle : create(asker);
}

void PagePool::give(PageHandle page) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(page);
}

void PagePool::prepare(std::uint64_t pages) {
  while (stats().pages_idle < pages) give(create(nullptr));
}

// One after another, since a list of them would need memory.
void PagePool::trim() {
  for (std::uint64_t left = stats().pages_idle; left > 0; --left) {
    const auto page = take_idle();
    if (!page) return;
    try {
      backend_.release_pages(*page);
    } catch (...) {
      give(*page);
      throw;
    }
    const std::lock_guard lock(mutex_);
    --held_;
  }
}

void PagePool::reclaim() {
  collect_left_pages(nullptr);
  trim();
}

void PagePool::enter(GrowableBuffer* buffer) {
  const std::lock_guard lock(buffers_mutex_);
  buffers_.push_back(buffer);
}

void PagePool::leave(GrowableBuffer* buffer) {
  const std::lock_guard lock(buffers_mutex_);
  std::erase(buffers_, buffer);
}

// Whether any came.
bool PagePool::collect_left_pages(GrowableBuffer* except) {
  const std::lock_guard lock(buffers_mutex_);
  std::uint64_t bytes = 0;
  for (GrowableBuffer* const buffer : buffers_)
    if (buffer != except) ignore_refusal([&] { bytes += buffer->try_give_back(); });
  return bytes > 0;
}

PagePoolStats PagePool::stats() const {
  const std::lock_guard lock(mutex_);
  return {page_bytes_, held_ - idle_.size(), idle_.size(), created_};
}

std::uint64_t PagePool::idle_bytes() const {
  const std::lock_guard lock(buffers_mutex_);
  std::uint64_t bytes = stats().pages_idle * page_bytes_;
  for (GrowableBuffer* const buffer : buffers_) bytes += buffer->left_bytes();
  return bytes;
}

}  // namespace tenon
