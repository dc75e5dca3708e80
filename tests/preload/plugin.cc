// A plugin of a C program: the C++ library is not among the program's own libraries.
#include <cstddef>
#include <new>
#include <string>
#include <vector>

namespace {

struct alignas(256) Wide {
  char bytes[256];
};

}  // namespace

extern "C" int use_operators() {
  std::vector<int> large(100'000, 1);
  std::string small(100, 'x');
  auto* wide = new Wide[3];
  delete[] wide;
  if (large[99'999] != 1 || small.size() != 100) return 1;
  volatile std::size_t too_much = std::size_t{1} << 61;
  if (::operator new(too_much, std::nothrow) != nullptr) return 2;
  try {
    ::operator delete(::operator new(too_much));
    return 3;
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
