// Frees a bare pointer twice.
#include "guarded.h"

int main() {
  return tenon::run_guarded([] {
    void* const data = tenon::allocator().raw_allocate(1000);  // made here
    tenon::allocator().raw_deallocate(data);                   // freed here
    tenon::allocator().raw_deallocate(data);                   // freed again here
  });
}
