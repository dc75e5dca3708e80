#include "http_conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace tenon::command {
namespace {

constexpr std::size_t kMostHeadBytes = 16 * 1024;
constexpr const char* kText = "text/plain; charset=utf-8";

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// What the header fields say of a request. A field that must stand once and stands twice, or a line
// that is no field, makes it malformed: two readers could take it for two different requests.
struct Fields {
  std::optional<std::string_view> host, content_length;
  bool has_transfer_encoding = false;
  bool closes = false;
  bool malformed = false;
};

Fields read_fields(std::string_view headers) {
  Fields fields;
  const auto once = [&](std::optional<std::string_view>& field, std::string_view value) {
    fields.malformed |= field.has_value();
    field = value;
  };
  while (!headers.empty()) {
    const std::size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(std::min(end + 2, headers.size()));
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    fields.malformed |= colon == line.size() || name.empty() ||
                        name.find_first_of(" \t\r\n") != name.npos;
    const std::string_view value = trimmed(line.substr(std::min(colon + 1, line.size())));
    if (same_word(name, "host")) once(fields.host, value);
    if (same_word(name, "content-length")) once(fields.content_length, value);
    fields.has_transfer_encoding |= same_word(name, "transfer-encoding");
    fields.closes |= same_word(name, "connection") && same_word(value, "close");
  }
  return fields;
}

const char* reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    default: return "HTTP Version Not Supported";  // 505
  }
}

}  // namespace

bool HttpConversation::is_full() const { return in_.size() > 4 * kMostHeadBytes; }

std::string_view HttpConversation::to_send() {
  for (;;) {
    if (!answering_ && (over_ || !begin_next())) return {};
    const std::size_t head = out_.size();
    const std::string_view rest = sent_ < head ? std::string_view(out_).substr(sent_)
                                               : body_.substr(sent_ - head);
    if (!rest.empty()) return rest;
    answering_ = false;
    over_ = last_;
  }
}

// Begins to answer the next request. False: not all of it is there yet.
bool HttpConversation::begin_next() {
  while (in_.starts_with("\r\n")) in_.erase(0, 2);
  const std::size_t end = in_.find("\r\n\r\n");
  if (end == std::string::npos || end > kMostHeadBytes) {
    if (in_.size() <= kMostHeadBytes + 3) return false;  // its end may be in part here
    last_ = true;
    begin({431, kText, "the request's head is too large\n"}, true);
    return true;
  }
  const std::string head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  const std::string_view all = head;
  const std::string_view line = all.substr(0, all.find("\r\n"));
  const std::size_t first = line.find(' ');
  const std::size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
  const std::string_view version = second == line.npos ? "" : line.substr(second + 1);
  if (!version.starts_with("HTTP/")) {
    last_ = true;
    begin({400, kText, "that is no request of HTTP\n"}, true);
  } else if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    last_ = true;
    begin({505, kText, "this is HTTP/1.1\n"}, true);
  } else {
    if (version == "HTTP/1.0") last_ = true;
    answer(line.substr(0, first), line.substr(first + 1, second - first - 1),
           all.substr(line.size() + 2));
  }
  return true;
}

void HttpConversation::answer(std::string_view method, std::string_view target,
                              std::string_view headers) {
  const Fields fields = read_fields(headers);
  if (fields.closes) last_ = true;
  const bool with_body = method != "HEAD";
  if (fields.malformed) {
    last_ = true;
    return begin({400, kText, "a header field is malformed or repeated\n"}, with_body);
  }
  if (fields.content_length.value_or("0") != "0" || fields.has_transfer_encoding) {
    last_ = true;  // its body would be taken for the next request
    return begin({413, kText, "requests here have no body\n"}, with_body);
  }
  const auto& host = fields.host;
  if (!host || (*host != fmt::format("127.0.0.1:{}", port_) &&
                *host != fmt::format("localhost:{}", port_)))
    return begin({host ? 421 : 400, kText, "this host is 127.0.0.1\n"}, with_body);
  if (method != "GET" && method != "HEAD")
    return begin({405, kText, "only GET and HEAD\n"}, with_body,
                 "Allow: GET, HEAD\r\n");
  begin((*handler_)(target.substr(0, target.find('?'))), with_body);
}

void HttpConversation::begin(const HttpAnswer& answer, bool with_body, std::string_view extra) {
  out_ = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Referrer-Policy: no-referrer\r\n{}{}\r\n",
      answer.status, reason(answer.status), answer.type, answer.body.size(), extra,
      last_ ? "Connection: close\r\n" : "");
  body_ = with_body ? answer.body : std::string_view();
  sent_ = 0;
  answering_ = true;
}

}  // namespace tenon::command
