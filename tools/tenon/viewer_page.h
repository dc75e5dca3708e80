// viewer/dist/viewer.html, put into the program when it was built.
#pragma once

#include <string_view>

namespace tenon::command {

std::string_view viewer_page();

}  // namespace tenon::command
