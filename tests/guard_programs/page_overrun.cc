// Reads one element too many, which changes nothing and so leaves no trace.
#include "guarded.h"

int main() {
  return tenon::run_page_guarded([] {
    const tenon::DataPtr block = tenon::allocator().allocate(1000 * sizeof(int));  // made here
    const volatile int* const values = static_cast<const int*>(block.get());
    int sum = 0;
    for (int i = 0; i <= 1000; ++i)
      sum += values[i];  // noticed here
    return sum;
  });
}
