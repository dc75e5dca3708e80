// Pages that torch.cuda._memory_viz writes (trace_plot, segment_plot): HTML with the pickle of a
// snapshot in it. Thread-safe. O(bytes).
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// Whether the bytes are such a page. A search in the first 4 KiB.
bool looks_like_viz_page(std::string_view bytes);

// The pickle in it. Throws ParseError, with the offset, where its base64 is damaged or cut off.
// Requires: looks_like_viz_page(bytes).
std::string pickle_of_page(std::string_view bytes, const std::string& name);

}  // namespace tenon
