#include "tenon/memory/tag.h"

namespace tenon {
namespace {
thread_local Tag thread_tag;
}  // namespace

Tag current_tag() { return thread_tag; }

TagGuard::TagGuard(Tag tag) : previous_(thread_tag) {
  if (tag.phase != nullptr) thread_tag.phase = tag.phase;
  if (tag.call_site != nullptr) thread_tag.call_site = tag.call_site;
}

TagGuard::~TagGuard() { thread_tag = previous_; }

}  // namespace tenon
