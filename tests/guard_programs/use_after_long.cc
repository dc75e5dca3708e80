// The same, in a program that goes on for so long that the block leaves the quarantine.
#include <cstring>

#include "guarded.h"

int main() {
  tenon::GuardOptions small;
  small.quarantine_bytes = 10'000;
  return tenon::run_guarded(
      [] {
        tenon::DataPtr block = tenon::allocator().allocate(500);  // made here
        char* const stale = static_cast<char*>(block.get());
        block.clear();  // freed here
        std::memset(stale + 100, 7, 50);
        for (int i = 0; i < 1000; ++i) tenon::allocator().allocate(500).clear();  // noticed here
      },
      small);
}
