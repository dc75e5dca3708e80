#include "tenon/lab/ranks/html.h"

#include "tenon/base/printable.h"
#include "tenon/lab/view/page.h"

namespace tenon {

std::string html_text(std::string_view text) { return escape_html(one_line(text)); }

}  // namespace tenon
