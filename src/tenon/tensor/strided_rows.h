// Dense rows out of elements that lie apart, or of one element, in vectors.
#pragma once

#include <cstdint>

namespace tenon::detail {

// to[i] = from[2 i], each of `item` bytes: 1, 2, 4, 8 or 16.
void copy_every_other(void* to, const void* from, std::int64_t item, std::int64_t count);

// to[i] = *from.
void repeat_item(void* to, const void* from, std::int64_t item, std::int64_t count);

}  // namespace tenon::detail
