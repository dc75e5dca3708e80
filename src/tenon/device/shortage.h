// How a driver that is short of memory asks the layers above for it. O(holders).
#pragma once

#include <vector>

#include "tenon/base/error.h"
#include "tenon/device/backend.h"

namespace tenon {

// What the layers above do when a driver is short. `memory/` installs it (memory/reclaim.cc).
class ShortageHandler {
 public:
  // Asks the holders of idle memory of `driver` to free it; true: some may have. Called with no
  // lock of the driver held, since they free through it.
  virtual bool relieve(const Backend& driver) = 0;
  // Who still holds idle memory of `driver`, for the message of OutOfMemory.
  virtual std::vector<IdleHolder> holders(const Backend& driver) = 0;

 protected:
  ~ShortageHandler() = default;
};

// The process's; null while nothing above holds memory. Thread-safe. The handler must not end.
void set_shortage_handler(ShortageHandler* handler);
ShortageHandler* shortage_handler();

}  // namespace tenon
