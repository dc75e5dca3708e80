// Room in a vector before something happens that cannot be undone.
#pragma once

#include <cstddef>

namespace tenon {

// After this the next `more` push_backs do not allocate and do not throw. Amortised O(1), which
// reserve(size() + 1) is not. Throws std::bad_alloc; then nothing has changed.
template <typename Vector>
void reserve_more(Vector& vector, std::size_t more = 1) {
  const std::size_t wanted = vector.size() + more;
  if (wanted > vector.capacity()) vector.reserve(2 * wanted);
}

}  // namespace tenon
