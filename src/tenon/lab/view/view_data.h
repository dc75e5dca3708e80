// A trace as the viewer wants it: figures to say first, and columns to draw from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/view/column.h"
#include "tenon/lab/workload.h"
#include "tenon/trace/snapshot.h"
#include "tenon/trace/trace.h"

namespace tenon {

// What is known beyond the trace: the verdict in words, and what each block is for.
struct ViewAnswer {
  // What one category has of the live peak.
  struct Share {
    std::uint8_t category = 0;
    std::uint64_t bytes = 0;  // at the live peak
    std::string confidence;   // in a word
  };
  std::vector<std::string> sentences;   // empty: there is no verdict
  std::vector<std::string> changes;     // what to change, a line each
  std::vector<std::string> categories;  // their names
  std::vector<Share> shares;            // most bytes first
  std::vector<std::uint8_t> category;   // of each block; empty: not known
};

// What is shown beside the recording.
struct ViewOptions {
  std::vector<std::string> policies;  // replayed and put side by side; may be empty
  std::string conf;                   // PyTorch's allocator settings
  std::uint64_t capacity_bytes = 0;   // of every replay; 0: none
  std::uint64_t lag_ns = 5'000'000;
  std::string file;                   // where the trace came from, as shown
  // What a snapshot's allocator held when the recording ended; with it, the recording itself is
  // the first of the policies, "recorded".
  std::vector<SnapshotSegment> segments;
  ViewAnswer answer;
};

// Where the page finds its columns: in itself, or at the server that it came from.
enum class ColumnsAt : std::uint8_t { kPage, kServer };

// What is shown. `figures` is what `tenon view --json` prints; `summary` the same with what the
// page needs besides (a coarse outline, the list of columns, `source`). Both are JSON in ASCII.
struct ViewData {
  std::string name;
  std::string figures;
  std::string summary;
  std::vector<Column> columns;
  ColumnsAt columns_at = ColumnsAt::kPage;
};

// Replays over every policy (on several threads) and packs. O(events log blocks) besides the
// replays; memory about 130 bytes an event, the trace included, if that is moved in. Throws
// InvalidArgument for unknown policies or settings.
ViewData make_view(Trace trace, const ViewOptions& options, ColumnsAt columns_at);

}  // namespace tenon
