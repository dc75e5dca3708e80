// Reads a recording and replays it.
#include <tenon/lab/replayer.h>
#include <tenon/lab/workload.h>
#include <tenon/trace/load.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::vector<tenon::Trace> traces = tenon::load_traces(argv[1]);
  std::printf("%zu traces, %zu events\n", traces.size(), traces.at(0).events.size());
  return traces.at(0).events.empty() ? 1 : 0;
}
