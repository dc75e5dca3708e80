// The records of what lives in an arena, and of what outlived its scope.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tenon/heap/block.h"

namespace tenon {
class ScopePool;
}

namespace tenon::scopes {

// One block in an arena: the context of its DataPtr.
//
//   kLive --- deleter ---> kDead            while the scope is open: no other record changes
//   kLive --- end of scope ---> kEscaped --- deleter ---> kDead, which its cluster counts
//
// Escapes that lie together are a cluster, which keeps their bytes from being used again. Its
// record is that of its first escape, so that the end of a scope needs no memory for it.
struct Resident {
  enum class State : std::uint8_t { kLive, kEscaped, kDead };

  Resident* cluster = nullptr;  // its first escape; set before the state becomes kEscaped
  union {
    std::uint64_t offset = 0;   // in its chunk
    Block* block;               // a cluster's: the bytes, in the chunk's placement
  };
  std::uint64_t size_bytes = 0;
  std::atomic<State> state{State::kDead};
  std::atomic<std::uint32_t> escapes{0};  // a cluster's, and the scope that closes it
};

// Residents by the page, so that a page can be found from a resident and live as long as its
// escapes do.
struct alignas(4096) ResidentPage {
  static constexpr std::uint32_t kResidents = 127;

  std::atomic<std::uint32_t> holders{0};  // its escapes and clusters, and the arena that fills it
  ResidentPage* next = nullptr;           // in the pool's list of free ones
  std::shared_ptr<ScopePool> pool;        // once it has escapes
  Resident residents[kResidents];

  static ResidentPage* of(Resident* resident) {
    return reinterpret_cast<ResidentPage*>(reinterpret_cast<std::uintptr_t>(resident) &
                                           ~std::uintptr_t{4095});
  }
  void drop() {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};
static_assert(sizeof(ResidentPage) == 4096);

}  // namespace tenon::scopes
