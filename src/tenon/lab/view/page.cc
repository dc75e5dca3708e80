#include "tenon/lab/view/page.h"

#include <fmt/format.h>

#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr std::string_view kTitleMark = "%TENON_TITLE%";
constexpr std::string_view kSummaryMark = "%TENON_SUMMARY%";
constexpr std::string_view kColumnsMark = "<!--%TENON_COLUMNS%-->";

// Cuts `rest` behind the mark and returns what came before it.
std::string_view before_mark(std::string_view& rest, std::string_view mark) {
  const std::size_t at = rest.find(mark);
  if (at == std::string_view::npos)
    throw InvalidArgument(fmt::format("the viewer has no {} in its place: build it anew", mark));
  const std::string_view before = rest.substr(0, at);
  rest.remove_prefix(at + mark.size());
  return before;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
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

std::string escape_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out;
}

std::string make_page(std::string_view viewer, const ViewData& data) {
  std::string out;
  out += before_mark(viewer, kTitleMark);
  out += escape_html(data.name);
  out += before_mark(viewer, kSummaryMark);
  out += escape_script(data.summary);
  out += before_mark(viewer, kColumnsMark);
  if (data.columns_at == ColumnsAt::kServer) return out += viewer;
  for (const Column& column : data.columns)
    for (std::size_t piece = 0; piece < column.pieces.size(); ++piece)
      // Names are the program's own: letters, digits, dots and underlines.
      out += fmt::format("<script type=\"text/plain\" data-piece=\"{}/{}\">{}</script>\n",
                         column.name, piece, base64(column.pieces[piece]));
  out += viewer;
  return out;
}

}  // namespace tenon
