// A buffer that grows where it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tenon/memory/front/completion.h"
#include "tenon/memory/growable/page_pool.h"

namespace tenon {

// A range of addresses, reserved once, with pages behind its beginning: as many as its size needs,
// and what was committed ahead. The address never changes and nothing is ever copied (the idea of
// vAttention, Prabhu et al. 2024, arXiv 2405.04437).
//
//   base |<------ size ------>|
//        | page | page | page | page | addresses without memory ............ | reserved
//        |<------- committed ------->|
//
// Growth within what is committed is one store. commit() from another thread keeps driver calls off
// the path that grows. Pages that a shrinking buffer leaves go back to the pool when the work
// queued until then is over: at the next resize or give_back, or at the end, which waits.
//
// Thread safety: any thread may call commit, give_back and the const functions. resize and the
// buffer's contents are one owner's. Failure: OutOfMemory, or DeviceError for an event, with the
// buffer unchanged. Where the driver refuses to unmap, the buffer is smaller, and the pages stay
// for the next give_back. resize is O(1) within what is committed, else O(pages).
class GrowableBuffer {
 public:
  // Reserves addresses for `most_bytes`, rounded up to pages, and no memory. Throws DeviceError
  // when the addresses cannot be had, InvalidArgument for 0 bytes and for no pool.
  GrowableBuffer(std::shared_ptr<PagePool> pool, std::uint64_t most_bytes, Stream stream = {});
  ~GrowableBuffer();
  GrowableBuffer(const GrowableBuffer&) = delete;
  GrowableBuffer& operator=(const GrowableBuffer&) = delete;

  // Its address, the bytes in use, with memory behind them and with addresses, and what serves it.
  void* data() const { return reinterpret_cast<void*>(range_.base); }
  std::uint64_t size() const { return size_bytes_; }
  std::uint64_t committed() const { return committed_bytes_.load(std::memory_order_acquire); }
  std::uint64_t reserved() const { return range_.size_bytes; }
  Stream stream() const { return stream_; }
  const std::shared_ptr<PagePool>& pool() const { return pool_; }

  // Throws InvalidArgument beyond what is reserved.
  void resize(std::uint64_t size_bytes);
  // Memory for so many bytes from the beginning on, ahead of need.
  void commit(std::uint64_t size_bytes);
  // Pages beyond the size and beyond what was committed since the last shrink go back to the pool.
  // Returns how many bytes. Without `wait`, only where the work on them is over.
  std::uint64_t give_back(bool wait);
  // Work queued on that stream uses the buffer too.
  void record_stream(Stream stream);

 private:
  friend class PagePool;
  // For the pool, in a shortage: give_back(false), and the most that it may return. 0 while another
  // call is under way.
  std::uint64_t try_give_back();
  std::uint64_t left_bytes();

  std::uint64_t pages_for(std::uint64_t bytes) const {
    return (bytes + pool_->page_bytes() - 1) / pool_->page_bytes();
  }
  template <typename Change>
  void change_pages(std::unique_lock<std::mutex> lock, Change&& change);
  std::uint64_t give_back(std::unique_lock<std::mutex> lock, bool wait);
  void report(std::uint64_t before, std::uint64_t after);
  void check_reach(std::uint64_t bytes, const char* what) const;
  [[noreturn]] void refuse(const char* call, std::uint64_t bytes) const;
  // --- Under mutex_.
  void map_next();
  void map_until(std::uint64_t pages);
  void retire_from(std::uint64_t pages);
  bool work_is_over(bool wait);
  void unmap_from(std::uint64_t pages);
  void add_user(Stream stream);

  const std::shared_ptr<PagePool> pool_;
  Backend& backend_;
  const Stream stream_;
  const AddressRange range_;
  std::uint64_t size_bytes_ = 0;
  std::atomic<std::uint64_t> committed_bytes_{0};
  std::mutex mutex_;                // all below, and the mapping
  std::vector<PageHandle> pages_;   // mapped, from the beginning on
  std::uint64_t open_pages_ = 0;    // those with access
  std::uint64_t wanted_pages_ = 0;  // those beyond are retired
  std::vector<std::unique_ptr<Completion>> users_;  // of the retired pages, by their latest numbers
};

}  // namespace tenon
