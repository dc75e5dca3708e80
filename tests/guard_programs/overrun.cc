// Writes one element too many.
#include <cstddef>

#include "guarded.h"

namespace {

void fill_up_to_and_including(float* values, std::size_t count) {
  for (std::size_t i = 0; i <= count; ++i) values[i] = 1.0f;
}

}  // namespace

int main() {
  return tenon::run_guarded([] {
    const tenon::TagGuard tag({"forward", "bias"});
    tenon::DataPtr block = tenon::allocator().allocate(100 * sizeof(float));  // made here
    fill_up_to_and_including(static_cast<float*>(block.get()), 100);
    block.clear();  // noticed here
  });
}
