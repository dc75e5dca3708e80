// Every environment variable that Tenon reads is in the table of `tenon info --environment`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "house/tree.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using testing::kRoot;
using testing::text_of;
const fs::path kTable = kRoot / "src/tenon/base/environment.cc";

// Names in quotes, as getenv takes them.
void add_variables(const fs::path& file, std::set<std::string>& names) {
  static const std::regex kName("\"(TENON_[A-Z_]+)\"");
  const std::string text = text_of(file);
  for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at)
    names.insert((*at)[1]);
}

TEST(Environment, TheTableHasEveryVariableThatIsRead) {
  std::set<std::string> read;
  for (const char* folder : {"src", "bindings/c", "bindings/preload", "bindings/torch"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string kind = entry.path().extension().string();
      if (entry.path() == kTable) continue;
      if (kind == ".cc" || kind == ".h" || kind == ".py") add_variables(entry.path(), read);
    }
  std::set<std::string> in_table;
  add_variables(kTable, in_table);
  EXPECT_EQ(read, in_table) << "the table is in " << kTable;
}

}  // namespace
}  // namespace tenon
