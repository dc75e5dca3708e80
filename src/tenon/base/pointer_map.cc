#include "tenon/base/pointer_map.h"

namespace tenon {

void PointerTable::grow() {
  std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.key != nullptr) slots_[slot_of(slot.key)] = slot;
}

}  // namespace tenon
