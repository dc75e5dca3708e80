// What an engine writes, with every public header, under the strictest warnings: they must give
// none, and no two may give one name to two types. Linked into one program, such types are one to
// the linker, which keeps the functions of either.
#include "public_headers.h"

namespace tenon {

PolicyOptions strict_options() { return {.limit_bytes = 1 << 20}; }
std::uint64_t strict_draw(Random& random) { return random.below(10); }

}  // namespace tenon
