#include "tenon/lab/ranks/html.h"

#include "tenon/base/printable.h"

namespace tenon {

std::string html_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : one_line(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace tenon
