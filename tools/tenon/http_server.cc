#include "http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>

namespace tenon::command {
namespace {

constexpr std::size_t kMostConnections = 64;
constexpr std::size_t kMostHeadBytes = 16 * 1024;
constexpr std::int64_t kSilentMs = 60'000;
constexpr const char* kText = "text/plain; charset=utf-8";

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

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

bool means_no_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
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

HttpServer::HttpServer(std::uint16_t port, Handler handler) : handler_(std::move(handler)) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (socket_ >= 0) ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  if (socket_ < 0 || ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(socket_, 64) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const std::string why = std::strerror(errno);
    if (socket_ >= 0) ::close(socket_);
    throw std::runtime_error(fmt::format("cannot listen on 127.0.0.1:{}: {}", port, why));
  }
  port_ = ntohs(address.sin_port);
}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) ::close(connection.socket);
  ::close(socket_);
}

void HttpServer::run(int stop) {
  std::vector<pollfd> waits;
  for (;;) {
    const bool accepts = now_ms() >= accept_again_ms_;
    waits.assign({{stop, POLLIN, 0}, {socket_, static_cast<short>(accepts ? POLLIN : 0), 0}});
    for (const Connection& connection : connections_)
      waits.push_back({connection.socket,
                       static_cast<short>(connection.answering ? POLLOUT : POLLIN), 0});
    if (::poll(waits.data(), waits.size(), 1000) < 0 && errno != EINTR)
      throw std::runtime_error(fmt::format("poll failed: {}", std::strerror(errno)));
    if (waits[0].revents != 0) return;

    const std::int64_t now = now_ms();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      bool alive = now - connection.active_ms < kSilentMs;
      if (alive && waits[i + 2].revents != 0) {
        connection.active_ms = now;
        alive = connection.answering ? advance(connection) : receive(connection);
      }
      if (!alive) {
        ::close(connection.socket);
      } else {
        if (kept != i) connections_[kept] = std::move(connection);
        ++kept;
      }
    }
    connections_.resize(kept);
    if (waits[1].revents != 0) accept_all(now);
  }
}

void HttpServer::accept_all(std::int64_t now) {
  for (;;) {
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (means_no_descriptors(errno) && !drop_longest_silent()) accept_again_ms_ = now + 1000;
      return;
    }
    if (connections_.size() >= kMostConnections) drop_longest_silent();
    Connection connection;
    connection.socket = socket;
    connection.active_ms = now;
    connections_.push_back(std::move(connection));
  }
}

bool HttpServer::drop_longest_silent() {
  const auto silent = std::min_element(
      connections_.begin(), connections_.end(),
      [](const Connection& a, const Connection& b) { return a.active_ms < b.active_ms; });
  if (silent == connections_.end()) return false;
  ::close(silent->socket);
  connections_.erase(silent);
  return true;
}

bool HttpServer::receive(Connection& connection) {
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(connection.socket, buffer, sizeof buffer, 0);
    if (n == 0) return false;
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
      return advance(connection);
    }
    connection.in.append(buffer, static_cast<std::size_t>(n));
    if (connection.in.size() > 4 * kMostHeadBytes) return advance(connection);
  }
}

// Answers as many requests as are there and as the socket takes.
bool HttpServer::advance(Connection& connection) {
  while (connection.answering || begin_next(connection)) {
    const Sent sent = send_answer(connection);
    if (sent == Sent::kPart) return true;
    connection.answering = false;
    if (sent == Sent::kFailed || connection.last) return false;
  }
  return true;
}

// Begins to answer the next request. False: not all of it is there yet.
bool HttpServer::begin_next(Connection& connection) {
  while (connection.in.starts_with("\r\n")) connection.in.erase(0, 2);
  const std::size_t end = connection.in.find("\r\n\r\n");
  if (end == std::string::npos || end > kMostHeadBytes) {
    if (connection.in.size() <= kMostHeadBytes) return false;
    connection.last = true;
    begin(connection, {431, kText, "the request's head is too large\n"}, true);
    return true;
  }
  const std::string head = connection.in.substr(0, end + 2);
  connection.in.erase(0, end + 4);
  const std::string_view all = head;
  const std::string_view line = all.substr(0, all.find("\r\n"));
  const std::size_t first = line.find(' ');
  const std::size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
  const std::string_view version = second == line.npos ? "" : line.substr(second + 1);
  if (!version.starts_with("HTTP/")) {
    connection.last = true;
    begin(connection, {400, kText, "that is no request of HTTP\n"}, true);
  } else if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    connection.last = true;
    begin(connection, {505, kText, "this is HTTP/1.1\n"}, true);
  } else {
    if (version == "HTTP/1.0") connection.last = true;
    answer(connection, line.substr(0, first), line.substr(first + 1, second - first - 1),
           all.substr(line.size() + 2));
  }
  return true;
}

void HttpServer::answer(Connection& connection, std::string_view method, std::string_view target,
                        std::string_view headers) {
  const Fields fields = read_fields(headers);
  if (fields.closes) connection.last = true;
  const bool with_body = method != "HEAD";
  if (fields.malformed) {
    connection.last = true;
    return begin(connection, {400, kText, "a header field is malformed or repeated\n"}, with_body);
  }
  if (fields.content_length.value_or("0") != "0" || fields.has_transfer_encoding) {
    connection.last = true;  // its body would be taken for the next request
    return begin(connection, {413, kText, "requests here have no body\n"}, with_body);
  }
  const auto& host = fields.host;
  if (!host || (*host != fmt::format("127.0.0.1:{}", port_) &&
                *host != fmt::format("localhost:{}", port_)))
    return begin(connection, {host ? 421 : 400, kText, "this host is 127.0.0.1\n"}, with_body);
  if (method != "GET" && method != "HEAD")
    return begin(connection, {405, kText, "only GET and HEAD\n"}, with_body,
                 "Allow: GET, HEAD\r\n");
  begin(connection, handler_(target.substr(0, target.find('?'))), with_body);
}

void HttpServer::begin(Connection& connection, const HttpAnswer& answer, bool with_body,
                       std::string_view extra) {
  connection.out = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Referrer-Policy: no-referrer\r\n{}{}\r\n",
      answer.status, reason(answer.status), answer.type, answer.body.size(), extra,
      connection.last ? "Connection: close\r\n" : "");
  connection.body = with_body ? answer.body : std::string_view();
  connection.sent = 0;
  connection.answering = true;
}

HttpServer::Sent HttpServer::send_answer(Connection& connection) {
  for (;;) {
    const std::size_t head = connection.out.size();
    const std::string_view rest =
        connection.sent < head ? std::string_view(connection.out).substr(connection.sent)
                               : connection.body.substr(connection.sent - head);
    if (rest.empty()) return Sent::kAll;
    const ssize_t n = ::send(connection.socket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Sent::kPart : Sent::kFailed;
    connection.sent += static_cast<std::size_t>(n);
  }
}

}  // namespace tenon::command
