#include "target.h"

#include <cstdio>
#include <cstdlib>

namespace tenon::fuzz {

std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

const Target& find_target(std::string_view name) {
  for (const Target& target : targets())
    if (target.name == name) return target;
  std::fprintf(stderr, "TENON_FUZZ_TARGET must be one of:");
  for (const Target& target : targets())
    std::fprintf(stderr, " %.*s", static_cast<int>(target.name.size()), target.name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace tenon::fuzz
