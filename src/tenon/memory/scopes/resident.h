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

struct Chunk;

// Escapes that lie together, and the bytes that they keep from being used again.
struct Cluster {
  std::shared_ptr<ScopePool> pool;
  Chunk* chunk = nullptr;
  Block* block = nullptr;             // the bytes, in the chunk's placement
  std::uint64_t begin = 0;            // in the chunk
  std::uint64_t end = 0;
  std::atomic<std::uint32_t> residents{0};
};

// One block in an arena: the context of its DataPtr.
//
//   kLive --- deleter ---> kDead            while the scope is open: no other record changes
//   kLive --- end of scope ---> kEscaped --- deleter ---> kDead, which its cluster counts
struct Resident {
  enum class State : std::uint8_t { kLive, kEscaped, kDead };

  Cluster* cluster = nullptr;         // set before the state becomes kEscaped
  std::uint64_t offset = 0;           // in its chunk
  std::uint64_t size_bytes = 0;
  std::atomic<State> state{State::kDead};
};

// Residents by the page, so that a page can be found from a resident and live as long as its
// escapes do.
struct alignas(4096) ResidentPage {
  static constexpr std::uint32_t kResidents = 127;

  std::atomic<std::uint32_t> holders{0};  // its escapes, and the arena that fills it
  Resident residents[kResidents];

  static ResidentPage* of(Resident* resident) {
    return reinterpret_cast<ResidentPage*>(reinterpret_cast<std::uintptr_t>(resident) &
                                           ~std::uintptr_t{4095});
  }
};
static_assert(sizeof(ResidentPage) == 4096);

}  // namespace tenon::scopes
