// What every heap can do. Complexity: each heap's own.
#pragma once

#include <concepts>
#include <cstdint>

namespace tenon {

// A heap places blocks of numbers: a handle from place() says where (offset_of, size_of) and is all
// that release() needs. A handle converts to bool; an empty one means that nothing fits. Sizes may
// be rounded up, never down. The same calls give the same offsets. No heap is thread-safe, and none
// touches the memory it places. check_invariants() throws InternalError, naming the invariant.
template <typename H>
concept Heap = requires(H heap, const H& view, typename H::Handle handle, std::uint64_t number) {
  { heap.place(number, number) } -> std::same_as<typename H::Handle>;  // size, alignment
  heap.release(handle);
  static_cast<bool>(handle);
  { H::offset_of(handle) } -> std::same_as<std::uint64_t>;
  { H::size_of(handle) } -> std::same_as<std::uint64_t>;
  { view.free_bytes() } -> std::same_as<std::uint64_t>;
  { view.largest_free() } -> std::same_as<std::uint64_t>;  // a request of that size succeeds
  view.check_invariants();
};

}  // namespace tenon
