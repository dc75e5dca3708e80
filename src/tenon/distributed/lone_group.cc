#include "tenon/distributed/lone_group.h"

#include <fmt/format.h>

#include <cstring>

#include "tenon/base/error.h"

namespace tenon::distributed {
namespace {

int checked_rank(int rank, int size) {
  if (rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("rank {} of {}: ranks are 0 up to the size", rank, size));
  return rank;
}

// Copies `bytes` from `from` to `count` consecutive places; `from` may be one of them.
void repeat(const void* from, void* out, std::size_t bytes, int count) {
  for (int i = 0; i < count; ++i)
    std::memmove(static_cast<char*>(out) + static_cast<std::size_t>(i) * bytes, from, bytes);
}

}  // namespace

LoneGroup::LoneGroup(int rank, int size) : ProcessGroup(checked_rank(rank, size), size) {}

std::shared_ptr<ProcessGroup> LoneGroup::split(int, int) {
  return std::make_shared<LoneGroup>(rank(), size());
}

std::unique_ptr<Transfer> LoneGroup::all_to_all_bytes(const void* in, void* out,
                                                      std::size_t bytes) {
  const std::size_t mine = static_cast<std::size_t>(rank()) * bytes;
  repeat(static_cast<const char*>(in) + mine, out, bytes, size());
  return nullptr;
}
std::unique_ptr<Transfer> LoneGroup::all_gather_bytes(const void* in, void* out,
                                                      std::size_t bytes) {
  repeat(in, out, bytes, size());
  return nullptr;
}
std::unique_ptr<Transfer> LoneGroup::broadcast_bytes(void*, std::size_t, int) { return nullptr; }
std::unique_ptr<Transfer> LoneGroup::send_bytes(const void*, std::size_t, int) { return nullptr; }
std::unique_ptr<Transfer> LoneGroup::receive_bytes(void* data, std::size_t bytes, int) {
  std::memset(data, 0, bytes);
  return nullptr;
}

}  // namespace tenon::distributed
