#include "tenon/device/backend.h"

#include "tenon/base/error.h"

namespace tenon {

std::int64_t Backend::export_pages(PageHandle pages) {
  raise<DeviceError>("export_pages({}): {} cannot share memory between processes", pages.size_bytes,
                     to_string(device()));
}

PageHandle Backend::import_pages(std::int64_t token, std::uint64_t size_bytes) {
  raise<DeviceError>("import_pages({}, {}): {} cannot share memory between processes", token,
                     size_bytes, to_string(device()));
}

}  // namespace tenon
