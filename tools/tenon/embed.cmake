# Writes OUTPUT, a C++ source that holds the bytes of INPUT.
file(READ "${INPUT}" hex HEX)
string(REGEX REPLACE "(........................................)" "\\1\n" lines "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${lines}")
file(WRITE "${OUTPUT}" "#include <string_view>

namespace tenon::command {
namespace {
constexpr unsigned char kPage[] = {
${bytes}
};
}  // namespace

std::string_view viewer_page() {
  return {reinterpret_cast<const char*>(kPage), sizeof kPage};
}

}  // namespace tenon::command
")
