#include "tenon/device/shortage.h"

#include <atomic>

namespace tenon {
namespace {

constinit std::atomic<ShortageHandler*> the_handler{nullptr};

}  // namespace

void set_shortage_handler(ShortageHandler* handler) {
  the_handler.store(handler, std::memory_order_release);
}

ShortageHandler* shortage_handler() { return the_handler.load(std::memory_order_acquire); }

}  // namespace tenon
