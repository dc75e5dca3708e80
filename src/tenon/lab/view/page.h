// The page: the viewer with its data put in. Thread-safe: pure functions of their arguments. O(size
// of the page).
#pragma once

#include <string>
#include <string_view>

#include "tenon/lab/view/view_data.h"

namespace tenon {

// The viewer (viewer/dist/viewer.html) with `data` in it: the title, the summary and, where they
// belong into the page, the columns in base64. What comes from files is escaped, so that no name
// in it can end an element or begin one. Throws InvalidArgument for a viewer without its marks.
std::string make_page(std::string_view viewer, const ViewData& data);

// Text for HTML: & < > " ' become references.
std::string escape_html(std::string_view text);
// JSON for a script element: every <, > and & becomes an escape of JSON's.
std::string escape_script(std::string_view json);

}  // namespace tenon
