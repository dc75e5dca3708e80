#include "tenon/memory/front/stream_front.h"

#include <algorithm>

namespace tenon {

void sort_by_address(std::vector<SegmentInfo>& segments) {
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
}

}  // namespace tenon
