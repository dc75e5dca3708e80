// Work on several cores, with results that do not depend on how many. O(threads) beside the work.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tenon {

// How many threads a parallel loop may use, the caller included. At first: TENON_NUM_THREADS from
// the environment, or else the cores there are.
int num_threads();
// Throws InvalidArgument below 1, above 4096. Takes effect with the next loop.
void set_num_threads(int threads);

namespace detail {

using LoopBody = void (*)(void* context, std::int64_t begin, std::int64_t end);
void run_parallel(std::int64_t begin, std::int64_t end, std::int64_t grain, LoopBody body,
                  void* context);

// A pointer of the calling thread, which workers see as theirs while they run its loop.
void*& shared_with_workers();

}  // namespace detail

// The grain for `count` elements that do not depend on each other, `worth` of which are worth a
// second thread. More than those are cut finer, so that all threads end together.
constexpr std::int64_t even_grain(std::int64_t count, std::int64_t worth) {
  if (worth <= 1) return 1;
  return count <= worth ? worth : (worth + 3) / 4;
}

// Calls body(from, to) on pieces that together cover [begin, end) once each. Every piece except the
// last has a multiple of `grain` elements. So work that is split by grains does the same arithmetic
// on every number of threads. Up to one grain, and inside another parallel loop, the body runs on
// the calling thread. The first exception that a body throws is thrown here once all are done.
// Bodies must not wait for each other. Cost: a microsecond where the last loop ended less than 50
// microseconds ago, since its workers still look for work; else that of waking them, some ten
// microseconds, or forty where a virtual machine's processor sleeps. So a grain should be worth
// more. Up to eight workers are kept off the processor that the caller was on when it woke them.
template <typename Body>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, Body&& body) {
  if (end <= begin) return;
  if (end - begin <= grain) return body(begin, end);
  using Plain = std::remove_reference_t<Body>;
  detail::run_parallel(
      begin, end, grain,
      [](void* context, std::int64_t from, std::int64_t to) {
        (*static_cast<Plain*>(context))(from, to);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tenon
