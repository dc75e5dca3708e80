// Memory of the card that PyTorch's allocator does not have: the CUDA context and NCCL.
// Thread-safe: pure functions of their arguments. O(cards).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

// A card and what a process takes on it before PyTorch allocates anything.
struct Card {
  std::string_view name;        // "rtx3090"
  std::uint64_t memory_bytes;   // 0: not known
  std::uint64_t context_bytes;  // as nvidia-smi shows it
  std::string_view source;
};

// The last one stands for all other cards.
std::span<const Card> cards();

// Throws InvalidArgument, listing the known names. "" gives the last one.
const Card& find_card(std::string_view name);

// Bytes of a card that PyTorch's allocator does not get.
struct OutsideMemory {
  std::uint64_t context_bytes = 0;
  std::uint64_t nccl_bytes = 0;  // of one communicator; for several ranks
  std::string source;            // in words, for what is printed

  // All of them.
  std::uint64_t total() const { return context_bytes + nccl_bytes; }
};

// What to keep free on a card beside PyTorch's allocator, for a job of so many ranks.
OutsideMemory outside_memory(const Card& card, std::size_t ranks);

}  // namespace tenon
