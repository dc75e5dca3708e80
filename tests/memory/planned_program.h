// Random programs for plans, and the plan that best fit makes of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/heap/plan.h"

namespace tenon {

// A program's calls: a size to allocate (its block is the next number), or a block to free.
struct Call {
  std::uint64_t size = 0;  // 0: free `block`
  std::size_t block = 0;
  std::uint32_t stream = 0;
};

// Blocks of up to 2^22 bytes, at most some 40 live, on streams 0 to `streams` - 1.
inline std::vector<Call> random_program(std::uint64_t seed, int calls, std::uint32_t streams = 1) {
  Random random(seed);
  std::vector<Call> program;
  std::vector<std::size_t> live;
  std::size_t next = 0;
  for (int i = 0; i < calls; ++i) {
    if (!live.empty() && (random.chance(0.45) || live.size() > 40)) {
      const std::size_t pick = random.below(live.size());
      program.push_back({0, live[pick]});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
    } else {
      const std::uint64_t size = 1 + random.below(1ull << random.between(9, 22));
      program.push_back({size, 0, static_cast<std::uint32_t>(random.below(streams))});
      live.push_back(next++);
    }
  }
  for (const std::size_t block : live) program.push_back({0, block});
  return program;
}

// Planned by what best fit does with the program, on whatever stream it asks: with several, streams
// often take over memory of others, and the plan is shared.
inline Plan best_fit_plan(const std::vector<Call>& program, std::uint32_t streams = 1) {
  BestFitHeap heap;
  heap.add_extent(0, std::uint64_t{1} << 40);
  std::vector<Block*> blocks;
  std::vector<std::vector<PlanSlot>> slots(streams);
  for (const Call& call : program) {
    if (call.size == 0) {
      heap.release(blocks[call.block]);
      continue;
    }
    blocks.push_back(heap.place((call.size + 511) & ~511ull));
    slots[call.stream].push_back({blocks.back()->offset, blocks.back()->size});
  }
  Plan plan(512);
  plan.set_shared(streams > 1);
  for (std::uint32_t id = 0; id < streams; ++id) plan.set_stream(id, std::move(slots[id]));
  return plan;
}

}  // namespace tenon
