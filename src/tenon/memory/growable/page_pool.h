// Physical pages for growable buffers, kept for reuse.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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

// Pages of one size from a backend with virtual memory. A page that a buffer gives back serves the
// next one; trim() and a shortage elsewhere (reclaim.h) return idle pages to the driver.
//
// Thread-safe: one mutex, not held during driver calls. The backend must outlive the pool, and
// buffers hold the pool. take and give: O(1) beside the driver; prepare and trim: O(pages).
class PagePool final : private Reclaimer {
 public:
  // `page_bytes`: a multiple of the backend's granularity; 0: the granularity. `limit_bytes`: most
  // to hold; 0: none. Throws InvalidArgument without virtual memory and for another page size.
  static std::shared_ptr<PagePool> make(Backend& backend, std::uint64_t page_bytes = 0,
                                        std::uint64_t limit_bytes = 0);
  ~PagePool() override;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // An unmapped page. Throws OutOfMemory.
  PageHandle take();
  // Takes it back, unmapped.
  void give(PageHandle page);
  // Idle pages until there are so many: growth ahead of need. Throws OutOfMemory.
  void prepare(std::uint64_t pages);
  // Idle pages go back to the driver.
  void trim();

  // Who hears of the pages of its buffers: each is a block, from when it is mapped until it is
  // unmapped. Without a tag their call site is "growable buffer".
  ObserverList& observers() { return observers_; }
  // What it holds, from where, in pages of which size.
  PagePoolStats stats() const;
  Backend& backend() const { return backend_; }
  std::uint64_t page_bytes() const { return page_bytes_; }

 private:
  PagePool(Backend& backend, std::uint64_t page_bytes, std::uint64_t limit_bytes);
  bool try_create(PageHandle* page, Shortage* shortage);
  PageHandle create();
  std::string reclaim_name() const override { return "a page pool"; }
  std::uint64_t idle_bytes() const override;
  void reclaim() override { trim(); }

  Backend& backend_;
  const std::uint64_t page_bytes_;
  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::vector<PageHandle> idle_;
  std::uint64_t held_ = 0;  // pages, idle ones included
  std::uint64_t created_ = 0;
  ObserverList observers_;
  ReclaimEnrolment enrolment_;  // last
};

}  // namespace tenon
