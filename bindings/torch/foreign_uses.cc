#include "foreign_uses.h"

#include <algorithm>
#include <utility>

namespace tenon::torch {

void ForeignUses::record(void* data, CudaBackend& other, Stream stream) {
  const std::lock_guard lock(mutex_);
  std::vector<Use>& uses = uses_[data];
  const bool known = std::any_of(uses.begin(), uses.end(),
                                 [&](const Use& use) { return use.stream == stream; });
  if (!known) uses.push_back({&other, stream, {}});
}

void ForeignUses::free(void* data, std::function<void()> give_back) {
  const std::lock_guard lock(mutex_);
  const auto found = uses_.find(data);
  Waiting waiting{std::move(found->second), std::move(give_back)};
  uses_.erase(found);
  for (Use& use : waiting.uses)  // what is refused now is recorded later
    ignore_refusal([&] { use.event = use.other->record(use.stream); });
  waiting_.push_back(std::move(waiting));
  waiting_count_ = waiting_.size();
}

bool ForeignUses::is_over(Use& use, bool wait) {
  if (use.event.id == 0) use.event = use.other->record(use.stream);
  if (wait) use.other->wait(use.event);
  if (!use.other->query(use.event)) return false;
  use.other->destroy_event(use.event);
  return true;
}

void ForeignUses::give_back(bool wait) {
  std::list<Waiting> over;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const auto next = std::next(it);
      std::erase_if(it->uses, [&](Use& use) {
        bool is_gone = false;
        ignore_refusal([&] { is_gone = is_over(use, wait); });
        return is_gone;
      });
      if (it->uses.empty()) over.splice(over.end(), waiting_, it);
      it = next;
    }
    waiting_count_ = waiting_.size();
  }
  for (const Waiting& block : over) block.give_back();
}

}  // namespace tenon::torch
