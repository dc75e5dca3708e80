// libFuzzer's entry: TENON_FUZZ_TARGET names the target.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tenon::fuzz::Target& target = [] {
    const char* name = std::getenv("TENON_FUZZ_TARGET");
    return tenon::fuzz::find_target(name == nullptr ? "" : name);
  }();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
