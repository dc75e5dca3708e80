#include "rigs/perfect_packing.h"

#include <utility>

namespace tenon::rigs {
namespace {

struct Piece {
  std::uint64_t low, high;    // of memory
  std::uint32_t begin, end;   // of time

  double area() const { return static_cast<double>(high - low) * (end - begin); }
};

std::uint32_t moment(Random& random, std::uint64_t first, std::uint64_t last) {
  return static_cast<std::uint32_t>(random.between(first, last));
}

// Two pieces, or none where there is nothing between the edges.
std::vector<Piece> halved(Random& random, const Piece& p) {
  const bool has_bytes = p.high - p.low > 1;
  const bool has_moments = p.end - p.begin > 1;
  if (!has_bytes && !has_moments) return {};
  if (has_bytes && (!has_moments || random.chance(0.5))) {
    const std::uint64_t middle = random.between(p.low + 1, p.high - 1);
    return {{p.low, middle, p.begin, p.end}, {middle, p.high, p.begin, p.end}};
  }
  const std::uint32_t middle = moment(random, p.begin + 1, p.end - 1);
  return {{p.low, p.high, p.begin, middle}, {p.low, p.high, middle, p.end}};
}

// A middle piece and four around it, each beside the end of the next.
std::vector<Piece> turned(Random& random, const Piece& p) {
  if (p.high - p.low < 3 || p.end - p.begin < 3) return {};
  const std::uint64_t y1 = random.between(p.low + 1, p.high - 2);
  const std::uint64_t y2 = random.between(y1 + 1, p.high - 1);
  const std::uint32_t x1 = moment(random, p.begin + 1, p.end - 2);
  const std::uint32_t x2 = moment(random, x1 + 1, p.end - 1);
  return {{p.low, y1, p.begin, x2},
          {p.low, y2, x2, p.end},
          {y2, p.high, x1, p.end},
          {y1, p.high, p.begin, x1},
          {y1, y2, x1, x2}};
}

}  // namespace

PerfectPacking cut_rectangle(Random& random, std::uint64_t capacity, std::uint32_t duration,
                             std::size_t count) {
  std::vector<Piece> pieces = {{0, capacity, 0, duration}};
  for (std::size_t tries = 0; pieces.size() < count && tries < 20 * count; ++tries) {
    std::size_t chosen = random.below(pieces.size());
    const std::size_t other = random.below(pieces.size());
    if (pieces[other].area() > pieces[chosen].area()) chosen = other;
    const std::vector<Piece> parts = random.chance(0.3) ? turned(random, pieces[chosen])
                                                        : halved(random, pieces[chosen]);
    if (parts.empty()) continue;
    pieces[chosen] = parts[0];
    pieces.insert(pieces.end(), parts.begin() + 1, parts.end());
  }
  for (std::size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
  PerfectPacking packing;
  for (const Piece& piece : pieces) {
    packing.requests.push_back({piece.high - piece.low, piece.begin, piece.end});
    packing.offsets.push_back(piece.low);
  }
  return packing;
}

}  // namespace tenon::rigs
