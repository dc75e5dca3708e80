#include "tenon/memory/front/pending_frees.h"

#include "tenon/base/error.h"

namespace tenon {

Completion& PendingFrees::completion_of(Stream stream) {
  if (stream.id >= streams_.size()) streams_.resize(stream.id + 1);
  auto& completion = streams_[stream.id];
  if (completion == nullptr) completion = std::make_unique<Completion>(backend_, stream);
  return *completion;
}

void PendingFrees::record_use(Block* block, Stream stream) {
  for (const Use* use = uses_of(block); use != nullptr; use = use->next)
    if (use->stream->stream() == stream) return;
  Completion& completion = completion_of(stream);
  if (events_ == Events::kAtEachFree) completion.reserve_event();
  block->context = uses_.create(&completion, std::uint64_t{0}, uses_of(block));
  block->flags = block->flags | kHasUses;
}

void PendingFrees::add(Block* block) noexcept {
  for (Use* use = uses_of(block); use != nullptr; use = use->next) {
    use->number = use->stream->advance();
    if (events_ == Events::kAtEachFree) use->stream->try_record();
  }
  is_due_ = events_ == Events::kAtEachFree;
  block->link = nullptr;
  *last_ = block;
  last_ = &block->link;
}

bool PendingFrees::contains(const Block* block) const {
  for (const Block* each = first_; each != nullptr; each = each->link)
    if (each == block) return true;
  return false;
}

void PendingFrees::poll() {
  for (const auto& completion : streams_) {
    if (completion == nullptr) continue;
    ignore_refusal([&] { completion->record(); });  // what was refused at the free
    completion->poll();
  }
}

bool PendingFrees::is_over(const Block* block, bool wait) {
  for (const Use* use = uses_of(block); use != nullptr; use = use->next) {
    if (wait) use->stream->wait(use->number);
    if (!use->stream->is_complete(use->number)) return false;
  }
  return true;
}

void PendingFrees::drop_uses(Block* block) {
  Use* use = uses_of(block);
  while (use != nullptr) {
    Use* const next = use->next;
    uses_.destroy(use);
    use = next;
  }
  block->flags = block->flags & ~kHasUses;
}

}  // namespace tenon
