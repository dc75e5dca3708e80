// Tells observers what went back to the driver.
#pragma once

#include <vector>

#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/observer.h"

namespace tenon::host {

// Reports at its end, when no lock is held any more, and also when the driver has refused something
// in between.
class ReleaseReport {
 public:
  explicit ReleaseReport(ObserverList& observers) : observers_(observers) {}
  ~ReleaseReport() {
    for (const auto& [segment, stream] : released)
      observers_.report(MemoryEvent::kReleased, segment.base, segment.size_bytes, stream);
  }
  ReleaseReport(const ReleaseReport&) = delete;
  ReleaseReport& operator=(const ReleaseReport&) = delete;

  std::vector<Released> released;

 private:
  ObserverList& observers_;
};

}  // namespace tenon::host
