// Tells observers what went back to the driver.
#pragma once

#include "tenon/memory/host/region_store.h"
#include "tenon/memory/observer.h"

namespace tenon::host {

// Reports at its end, when no lock is held any more, and also when the driver has refused something
// in between.
class ReleaseReport {
 public:
  explicit ReleaseReport(ObserverList& observers) : observers_(observers) {}
  ~ReleaseReport() {
    for (const Region* region = released.first(); region != nullptr; region = region->next.get())
      observers_.report(MemoryEvent::kReleased, region->segment.base, region->segment.size_bytes,
                        region->stream);
  }
  ReleaseReport(const ReleaseReport&) = delete;
  ReleaseReport& operator=(const ReleaseReport&) = delete;

  Released released;

 private:
  ObserverList& observers_;
};

}  // namespace tenon::host
