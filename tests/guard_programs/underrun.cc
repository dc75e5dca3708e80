// Writes a header before the block, which is not its own.
#include <cstdint>

#include "guarded.h"

int main() {
  return tenon::run_guarded([] {
    tenon::DataPtr block = tenon::allocator().allocate(64);  // made here
    static_cast<std::uint64_t*>(block.get())[-1] = 64;
    block.clear();  // noticed here
  });
}
