#include "tenon/memory/placement/shared_range.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tenon/base/check.h"

namespace tenon {
namespace {

std::vector<std::uint64_t> borders_of(const Plan& plan) {
  std::vector<std::uint64_t> borders = {0};
  for (const auto& [id, stream] : plan.streams())
    for (const PlanSlot& slot : stream.slots) {
      borders.push_back(slot.offset);
      borders.push_back(slot.offset + slot.size);
    }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

}  // namespace

SharedRange::SharedRange(Backend& backend, const Plan& plan)
    : backend_(backend),
      borders_(borders_of(plan)),
      begins_(borders_.size()),
      pieces_(borders_.size()) {
  TENON_CHECK(borders_.size() < kNobody, "{} borders are too many", borders_.size());
  begins_.insert(0);
  pieces_[0].end = static_cast<std::uint32_t>(borders_.size() - 1);
}

SharedRange::Span SharedRange::span_of(std::uint64_t offset, std::uint64_t size) const {
  const auto number = [&](std::uint64_t at) {
    const auto found = std::lower_bound(borders_.begin(), borders_.end(), at);
    TENON_CHECK(found != borders_.end() && *found == at, "no slot of the plan ends at {}", at);
    return static_cast<std::uint32_t>(found - borders_.begin());
  };
  return {number(offset), number(offset + size)};
}

Completion& SharedRange::of(Stream stream) {
  if (stream.id >= streams_.size()) [[unlikely]]
    streams_.resize(stream.id + 1);
  if (streams_[stream.id] == nullptr) [[unlikely]]
    streams_[stream.id] = std::make_unique<Completion>(backend_, stream);
  return *streams_[stream.id];
}

bool SharedRange::claim(Span span, Stream stream, std::uint64_t generation) {
  const BiasedGuard lock(lock_);
  if (!is_open(generation)) return false;
  if (!is_own_piece(span, stream)) {
    const std::size_t first = piece_with(span.begin);
    bool is_ordered = true;
    if (!is_free(span, first, stream, is_ordered)) return false;
    of(stream);
    if (!is_ordered) wait_for_others(span, first, stream);
    make_one_piece(span, first);
  }
  take(span, stream);
  return true;
}

bool SharedRange::claim_fast(Span span, Stream stream, std::uint64_t generation) noexcept {
  const BiasedGuard lock(lock_);
  if (!is_open(generation)) return false;
  if (!is_own_piece(span, stream)) {
    if (stream.id >= streams_.size() || streams_[stream.id] == nullptr) return false;
    const std::size_t first = piece_with(span.begin);
    bool is_ordered = true;
    if (!is_free(span, first, stream, is_ordered) || !is_ordered) return false;
    make_one_piece(span, first);
  }
  take(span, stream);
  return true;
}

// Where the piece begins that the border is in, or begins.
inline std::size_t SharedRange::piece_with(std::uint32_t border) const {
  return pieces_[border].end != 0 ? border : begins_.at_most(border);
}

inline bool SharedRange::is_own_piece(Span span, Stream stream) const {
  const Piece& piece = pieces_[span.begin];
  return piece.end == span.end && !piece.in_use && piece.stream == stream.id;
}

// Requires: it is one piece.
inline void SharedRange::take(Span span, Stream stream) {
  pieces_[span.begin] = {0, true, stream.id, span.end};
  ++in_use_;
}

// `is_ordered` becomes false where the stream must wait for another. `first`: the piece with the
// span's begin, here and below.
inline bool SharedRange::is_free(Span span, std::size_t first, Stream stream,
                                 bool& is_ordered) const {
  for (std::size_t at = first; at < span.end; at = pieces_[at].end) {
    const Piece& piece = pieces_[at];
    if (piece.in_use) return false;
    if (!piece.is_for(stream.id))
      is_ordered &= streams_[piece.stream]->is_ordered(piece.number, stream.id);
  }
  return true;
}

void SharedRange::wait_for_others(Span span, std::size_t first, Stream stream) {
  for (std::size_t at = first; at < span.end; at = pieces_[at].end) {
    const Piece& left = pieces_[at];
    if (left.is_for(stream.id)) continue;
    Completion& leaving = *streams_[left.stream];
    leaving.poll();
    leaving.order_before(stream, left.number);
  }
}

// Cuts the pieces that reach out of the span, and lets those inside it become the one that begins
// it; what that one says is the caller's to write.
inline void SharedRange::make_one_piece(Span span, std::size_t first) {
  Piece last = pieces_[first];
  for (std::size_t at = last.end; at < span.end; at = last.end) {
    last = std::exchange(pieces_[at], {});
    begins_.erase(at);
  }
  if (last.end != span.end) {
    pieces_[span.end] = last;
    begins_.insert(span.end);
  }
  if (first != span.begin) {
    pieces_[first].end = span.begin;
    begins_.insert(span.begin);
  }
}

void SharedRange::give_back(Span span, Stream stream) {
  const BiasedGuard lock(lock_);
  pieces_[span.begin] = {streams_[stream.id]->advance(), false, stream.id, span.end};
  --in_use_;
}

void SharedRange::bring(Extent* chunk) {
  const std::lock_guard lock(lock_);
  chunk_ = chunk;
  ++generation_;
}

bool SharedRange::close_if_free() {
  const std::lock_guard lock(lock_);
  closed_ = in_use_ == 0;
  return closed_;
}

// The driver waits for all work before it takes memory back, so no stream is waited for any more.
void SharedRange::take_away() {
  const std::lock_guard lock(lock_);
  closed_ = false;
  chunk_ = nullptr;
  ++generation_;
  for (std::size_t at = begins_.above(0); at != OrderedBits::kNone; at = begins_.above(at)) {
    pieces_[at] = {};
    begins_.erase(at);
  }
  pieces_[0] = {0, false, kNobody, static_cast<std::uint32_t>(borders_.size() - 1)};
}

void SharedRange::check_invariants() const {
  const std::lock_guard lock(lock_);
  TENON_CHECK(begins_.contains(0), "the range has no first piece");
  std::size_t in_use = 0;
  for (std::size_t at = 0; at + 1 < borders_.size(); at = pieces_[at].end) {
    const Piece& piece = pieces_[at];
    TENON_CHECK(piece.end > at && piece.end == std::min(begins_.above(at), borders_.size() - 1),
                "a piece at {} ends where no other begins", borders_[at]);
    TENON_CHECK(!piece.in_use || piece.stream != kNobody, "nobody uses a piece at {}",
                borders_[at]);
    TENON_CHECK(begins_.contains(at), "no piece begins at {}", borders_[at]);
    in_use += piece.in_use ? 1 : 0;
  }
  TENON_CHECK(in_use == in_use_, "{} pieces in use, counted {}", in_use, in_use_);
}

}  // namespace tenon
