// Frees through a context that somebody has copied.
#include "guarded.h"

int main() {
  return tenon::run_guarded([] {
    tenon::DataPtr block = tenon::allocator().allocate(1000);  // made here
    void* const context = block.get_context();
    const tenon::DeleterFn deleter = block.get_deleter();
    block.clear();  // freed here
    deleter(context);  // freed again here
  });
}
