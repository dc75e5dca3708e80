// Physical pages for growable buffers, kept for reuse.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/reclaim.h"

namespace tenon {

// What a PagePool holds.
struct PagePoolStats {
  std::uint64_t page_bytes = 0;
  std::uint64_t pages_in_use = 0;
  std::uint64_t pages_idle = 0;     // held for the next buffer that grows
  std::uint64_t pages_created = 0;  // by the driver, ever
};

class GrowableBuffer;

// Pages of one size from a backend with virtual memory, which must outlive the pool. A page that a
// buffer gives back serves the next one; trim() and a shortage elsewhere (reclaim.h) return idle
// pages to the driver. In a shortage its buffers first give back the pages that they left.
//
// Thread-safe: a mutex that is not held during driver calls, and one for the list of buffers. take
// and give: O(1) beside the driver, take in a shortage O(buffers); prepare and trim: O(pages).
class PagePool final : private Reclaimer {
 public:
  // `page_bytes`: a multiple of the backend's granularity (0: the granularity). `limit_bytes`: most
  // to hold (0: no limit). Throws InvalidArgument without virtual memory or for another page size.
  static std::shared_ptr<PagePool> make(Backend& backend, std::uint64_t page_bytes = 0,
                                        std::uint64_t limit_bytes = 0);
  ~PagePool() override;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // An unmapped page. Throws OutOfMemory. `asker`: the buffer that grows, which holds its mutex.
  PageHandle take(GrowableBuffer* asker = nullptr);
  // Takes it back, unmapped. Never fails.
  void give(PageHandle page) noexcept;
  // Idle pages until there are so many: growth ahead of need. Throws OutOfMemory.
  void prepare(std::uint64_t pages);
  // Idle pages go back to the driver. One that the driver refuses stays idle; its error is thrown.
  void trim();

  // Who hears of the pages of its buffers: each is a block, from when it is mapped until it is
  // unmapped. Without a tag their call site is "growable buffer". An observer makes and ends no
  // buffer of the pool.
  ObserverList& observers() { return observers_; }
  // What it holds, from where, in pages of which size.
  PagePoolStats stats() const;
  Backend& backend() const { return backend_; }
  std::uint64_t page_bytes() const { return page_bytes_; }

 private:
  friend class GrowableBuffer;  // enters itself in buffers_

  PagePool(Backend& backend, std::uint64_t page_bytes, std::uint64_t limit_bytes);
  std::optional<PageHandle> try_create(Shortage* shortage);
  PageHandle create(GrowableBuffer* asker);
  std::string reclaim_name() const override { return "a page pool"; }
  std::uint64_t idle_bytes() const override;
  void reclaim() override;
  std::optional<PageHandle> take_idle();
  void enter(GrowableBuffer* buffer);
  void leave(GrowableBuffer* buffer);
  bool collect_left_pages(GrowableBuffer* except);

  Backend& backend_;
  const std::uint64_t page_bytes_;
  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::vector<PageHandle> idle_;
  std::uint64_t held_ = 0;  // pages, idle ones included
  std::uint64_t created_ = 0;
  mutable std::mutex buffers_mutex_;  // taken before a buffer's and before mutex_
  std::vector<GrowableBuffer*> buffers_;
  ObserverList observers_;
  ReclaimEnrolment enrolment_;  // last
};

}  // namespace tenon
