#include "tenon/trace/load.h"

#include "tenon/trace/csv.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

std::vector<Trace> load_traces(const std::string& path) {
  const FileBytes bytes(path);
  if (looks_like_pickle(bytes.view()) || path.ends_with(".pickle") || path.ends_with(".pkl"))
    return parse_snapshot(bytes.view(), path).traces;
  std::vector<Trace> traces;
  traces.push_back(parse_csv(bytes.view(), path));
  return traces;
}

}  // namespace tenon
