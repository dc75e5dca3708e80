#include "rigs/robson.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

struct Live {
  DataPtr data;
  std::uint64_t size = 0;

  // Whether the block covers an address that is `offset` above a multiple of `period`.
  bool covers(std::uint64_t offset, std::uint64_t period) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(data.get());
    return (offset - begin) % period < size;  // unsigned: the distance up to the next such address
  }
};

// How much room the blocks that cover such addresses spoil for blocks of `period` bytes.
std::uint64_t spoilt(const std::vector<Live>& blocks, std::uint64_t offset, std::uint64_t period) {
  std::uint64_t sum = 0;
  for (const Live& block : blocks)
    if (block.covers(offset, period)) sum += period - block.size;
  return sum;
}

}  // namespace

RobsonFigures run_robson(DeviceAllocator& allocator, std::uint64_t live_bound,
                         std::uint64_t smallest, std::uint64_t largest) {
  if (!std::has_single_bit(smallest) || !std::has_single_bit(largest) || smallest > largest ||
      largest > live_bound)
    throw InvalidArgument(fmt::format(
        "Robson's adversary needs powers of two, smallest <= largest <= live bound; not {}, {}, {}",
        format_byte_size(smallest), format_byte_size(largest), format_byte_size(live_bound)));
  RobsonFigures figures;
  std::vector<Live> blocks;
  std::uint64_t live = 0;
  std::uint64_t offset = 0;
  for (std::uint64_t size = smallest; size <= largest; size *= 2) {
    if (size > smallest) {
      const std::uint64_t other = offset + size / 2;
      if (spoilt(blocks, other, size) > spoilt(blocks, offset, size)) offset = other;
      std::erase_if(blocks, [&](const Live& block) {
        const bool goes = !block.covers(offset, size);
        if (goes) live -= block.size;
        return goes;
      });
    }
    for (; live + size <= live_bound; live += size, ++figures.blocks)
      blocks.push_back({allocator.allocate(size), size});
    figures.live_peak_bytes = std::max(figures.live_peak_bytes, live);
  }
  figures.reserved_peak_bytes =
      static_cast<std::uint64_t>(allocator.stats().reserved_bytes[0].peak);
  return figures;
}

double robson_bound(std::uint64_t live_bound, std::uint64_t smallest, std::uint64_t largest) {
  const int steps = std::countr_zero(largest) - std::countr_zero(smallest);
  return 1 + steps / 2.0 -
         static_cast<double>(largest - smallest) / static_cast<double>(live_bound);
}

}  // namespace tenon
