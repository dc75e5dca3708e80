// Writes a byte past an odd size: too near for the page behind the block.
#include "guarded.h"

int main() {
  return tenon::run_page_guarded([] {
    tenon::DataPtr block = tenon::allocator().allocate(1001);  // made here
    static_cast<char*>(block.get())[1001] = 1;
    block.clear();  // noticed here
  });
}
