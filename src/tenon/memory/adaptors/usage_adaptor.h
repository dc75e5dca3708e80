// What adaptors that count bytes in use have in common.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// Counts the bytes in use through it, as asked for. Thread-safe without a lock.
template <typename Base>
class UsageAdaptor : public Adaptor<Base> {
 public:
  using Adaptor<Base>::Adaptor;

  // Bytes in use, as asked for.
  std::uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 protected:
  using typename AdaptorCore<Base>::Block;

  // Counts these bytes as in use, unless that would bring the sum above the limit.
  bool reserve(std::uint64_t size_bytes, std::uint64_t limit_bytes) {
    std::uint64_t used = used_bytes();
    do {
      if (used > limit_bytes || size_bytes > limit_bytes - used) return false;
    } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes,
                                                std::memory_order_relaxed));
    return true;
  }

  // Hands out the block that `ask` returns. Its bytes were reserved, and are given back where there
  // is no block.
  template <typename Ask>
  DataPtr serve_reserved(std::size_t size_bytes, Stream stream, Ask&& ask) {
    try {
      DataPtr data = this->wrap(ask(), size_bytes, stream);
      if (data == nullptr) give_back(size_bytes);
      return data;
    } catch (...) {
      give_back(size_bytes);
      throw;
    }
  }

  // Refuses a request that a limit on the bytes in use forbids.
  [[noreturn]] void refuse_above(std::uint64_t limit_bytes, std::size_t size_bytes, Stream stream,
                                 std::string advice) {
    OutOfMemoryDetails details;
    details.allocated_bytes = details.reserved_bytes = used_bytes();
    details.limit_bytes = limit_bytes;
    details.largest_free_bytes = limit_bytes - std::min(limit_bytes, details.allocated_bytes);
    details.idle = idle_holders(this->own_shortage());
    details.advice = std::move(advice);
    this->refuse(size_bytes, stream, std::move(details));
  }

  void take_back(std::unique_ptr<Block> block) override {
    give_back(block->size_bytes);
    Adaptor<Base>::take_back(std::move(block));
  }

 private:
  void give_back(std::uint64_t size_bytes) {
    used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> used_bytes_{0};
};

}  // namespace tenon
