// Keeps a pointer into a block that has gone.
#include <cstring>

#include "guarded.h"

namespace {

char* last_name = nullptr;

void remember(tenon::DataPtr name) {
  std::strcpy(static_cast<char*>(name.get()), "tenon");
  last_name = static_cast<char*>(name.get());
  name.clear();  // freed here
}

}  // namespace

int main() {
  return tenon::run_guarded([] {
    remember(tenon::allocator().allocate(32));  // made here
    last_name[3] = 'O';
  });  // the quarantine is looked at when the guard ends
}
