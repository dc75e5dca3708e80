#include "rigs/stress/forked_child.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <thread>
#include <vector>

#include "rigs/stress/exchange.h"
#include "rigs/stress/marks.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

// Blocks of up to 128 KiB, marked; fewer where memory is short.
std::vector<HeldBlock> make_blocks(DeviceAllocator& allocator, std::uint64_t seed) {
  Random random(seed);
  std::vector<HeldBlock> blocks;
  for (std::uint64_t number = 1; number <= 100; ++number) {
    const std::uint64_t size_bytes = 1 + random.below(std::uint64_t{8} << random.below(15));
    try {
      blocks.push_back({allocator.allocate(size_bytes), size_bytes, seed + number});
    } catch (const OutOfMemory&) {
      break;
    }
    Marks(blocks.back().data.get(), size_bytes, seed + number).write();
  }
  return blocks;
}

bool are_whole(const std::vector<HeldBlock>& blocks) {
  for (const HeldBlock& block : blocks)
    if (Marks(block.data.get(), block.size_bytes, block.number).find_damage()) return false;
  return true;
}

}  // namespace

std::string run_in_forked_child(unsigned seconds, const std::function<std::string()>& work) {
  std::array<int, 2> ends = {};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(seconds);
    std::string fault;
    try {
      fault = work();
    } catch (const std::exception& error) {
      fault = error.what();
    }
    const bool written = ::write(ends[1], fault.data(), fault.size()) >= 0;
    ::_exit(fault.empty() && written ? 0 : 1);
  }
  ::close(ends[1]);
  std::array<char, 1000> text = {};
  const ssize_t length = child < 0 ? 0 : ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  if (child < 0) return "fork failed";
  int status = -1;
  if (::waitpid(child, &status, 0) != child) return "no child to wait for";
  if (status == 0) return "";
  if (length > 0) return {text.data(), static_cast<std::size_t>(length)};
  return fmt::format("it ended with status {:#x}", status);
}

std::string use_allocator_in_child(DeviceAllocator& allocator, std::uint64_t seed) {
  std::vector<HeldBlock> others;
  std::vector<HeldBlock> mine = make_blocks(allocator, seed << 16);
  std::thread([&] { others = make_blocks(allocator, (seed << 16) + 1000); }).join();
  static_cast<void>(allocator.stats());
  if (!are_whole(mine) || !are_whole(others)) return "a block's bytes are not as they were left";
  std::thread([&] { mine.clear(); }).join();
  others.clear();
  allocator.empty_cache();
  allocator.check_invariants();
  return "";
}

}  // namespace tenon
