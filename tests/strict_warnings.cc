// What an engine writes, under the strictest warnings: the headers must give none.
#include "tenon/base/random.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/policies.h"

namespace tenon {

PolicyOptions strict_options() { return {.limit_bytes = 1 << 20}; }
std::uint64_t strict_draw(Random& random) { return random.below(10); }

}  // namespace tenon
