// The operators new and delete over libtenon_preload.so, their failures included.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

struct alignas(4096) Page {
  char bytes[4096];
};

int handled = 0;
void stop_handling() {
  ++handled;
  std::set_new_handler(nullptr);
}

}  // namespace

int main(int argc, char**) {
  const auto serves =
      reinterpret_cast<int (*)(const void*)>(::dlsym(RTLD_DEFAULT, "tenon_preload_serves"));
  require(serves != nullptr, "libtenon_preload.so is preloaded");
  const std::vector<double> vector(100'000, 1.5);
  require(serves(vector.data()) == 1, "a large vector is Tenon's");
  const auto pages = std::make_unique<Page[]>(100);
  require(serves(pages.get()) == 1, "aligned ones too");
  require(reinterpret_cast<std::uintptr_t>(pages.get()) % 4096 == 0, "they are aligned");
  const std::string small(1000, 'x');
  require(serves(small.data()) == 0, "a small string is not");

  if (argc > 1) return 0;  // over mimalloc, which ends the program where operator new fails
  std::set_new_handler(stop_handling);
  volatile std::size_t too_much = std::size_t{1} << 61;
  try {
    ::operator delete(::operator new(too_much));
    require(false, "this much is refused");
  } catch (const std::bad_alloc&) {
  }
  require(handled == 1, "the new handler was called once");
  require(::operator new(too_much, std::nothrow) == nullptr, "without an exception");
  return 0;
}
