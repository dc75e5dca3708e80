// What `explain` says of a snapshot that a test wrote.
#pragma once

#include <string>

#include "tenon/lab/explain/explain.h"
#include "tenon/trace/snapshot.h"

namespace tenon::testing {

inline Explanation explained(const std::string& bytes) {
  return explain(parse_snapshot(bytes, "x.pickle"), "x.pickle");
}

}  // namespace tenon::testing
