// Reads what is no longer its own.
#include "guarded.h"

int main() {
  return tenon::run_page_guarded([] {
    tenon::DataPtr block = tenon::allocator().allocate(64);  // made here
    const volatile char* const stale = static_cast<const char*>(block.get());
    block.clear();  // freed here
    return stale[10];  // noticed here
  });
}
