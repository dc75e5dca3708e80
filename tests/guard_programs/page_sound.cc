// Nothing is wrong here.
#include <cstring>
#include <vector>

#include "guarded.h"

int main() {
  return tenon::run_page_guarded([] {
    std::vector<tenon::DataPtr> blocks;
    for (std::size_t i = 1; i < 2000; ++i) {
      blocks.push_back(tenon::allocator().allocate(i * 7));
      std::memset(blocks.back().get(), 1, i * 7);
      if (i % 3 == 0) blocks.erase(blocks.begin());
    }
  });
}
