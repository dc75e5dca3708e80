// A program of somebody else's: a policy over the host's memory.
#include <tenon/base/version.h>
#include <tenon/device/host/host_backend.h>
#include <tenon/memory/policies.h>

#include <cstdio>
#include <cstring>

int main() {
  const auto allocator = tenon::make_policy("host", tenon::host_backend());
  const tenon::DataPtr data = allocator->allocate(1 << 20);
  std::memset(data.get(), 1, 1 << 20);
  const auto stats = allocator->stats();
  std::printf("tenon %s: %lld bytes of %s\n", TENON_VERSION,
              static_cast<long long>(stats.requested_bytes[0].current), allocator->name().c_str());
  return stats.requested_bytes[0].current == 1 << 20 ? 0 : 1;
}
