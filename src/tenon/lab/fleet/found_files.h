// The files of a folder, at any depth. Thread-safe. O(files log files).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

// A file by its place in the folder.
struct FoundFile {
  std::string path;  // from the folder on: "job 7/rank_0.pickle"
  std::uint64_t bytes = 0;
};

// What stands in the folder and cannot be a recording, and why.
struct LeftOutFile {
  std::string path;
  std::string reason;
};

// All of a folder.
struct FoundFiles {
  std::vector<FoundFile> files;       // by path
  std::vector<LeftOutFile> left_out;  // by path
};

// What names of folders with results of earlier reports end with.
inline constexpr std::string_view kResultsEnding = ".fleet";

// All regular files under `folder`, also behind symbolic links. Names that begin with a dot,
// folders of results and the folder `without` (it need not exist) are passed over. Each folder is
// read once, so links that lead back end. Opens no file. Throws InvalidArgument where `folder`
// cannot be read or is none.
FoundFiles find_files(const std::string& folder, const std::string& without);

}  // namespace tenon
