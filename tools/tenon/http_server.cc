#include "http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace tenon::command {
namespace {

constexpr std::size_t kMostConnections = 64;
constexpr std::int64_t kSilentMs = 60'000;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool means_no_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

HttpServer::HttpServer(std::uint16_t port, HttpHandler handler) : handler_(std::move(handler)) {
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
  require_descriptor();
}

// One at least for a connection, or no request would ever be accepted.
void HttpServer::require_descriptor() {
  const int spare = ::fcntl(socket_, F_DUPFD_CLOEXEC, 0);
  if (spare >= 0) {
    ::close(spare);
    return;
  }
  ::close(socket_);
  throw std::runtime_error("no connection can be accepted, since this process may open no more "
                           "files: raise that limit (ulimit -n)");
}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) ::close(connection.socket);
  ::close(socket_);
}

short HttpServer::wanted_events(const Connection& connection) {
  return connection.conversation.is_answering() ? POLLOUT : POLLIN;
}

void HttpServer::run(int stop) {
  std::vector<pollfd> waits;
  for (;;) {
    const bool accepts = now_ms() >= accept_again_ms_;
    waits.assign({{stop, POLLIN, 0}, {socket_, static_cast<short>(accepts ? POLLIN : 0), 0}});
    for (const Connection& connection : connections_)
      waits.push_back({connection.socket, wanted_events(connection), 0});
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
        alive = waits[i + 2].events == POLLOUT ? send_answers(connection) : receive(connection);
      }
      if (!alive) {
        ::close(connection.socket);
      } else {
        if (kept != i) connections_[kept] = std::move(connection);
        ++kept;
      }
    }
    connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(kept),
                       connections_.end());
    if (waits[1].revents != 0) accept_all(now);
  }
}

void HttpServer::accept_all(std::int64_t now) {
  for (;;) {
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      // The system looks for a descriptor first: there may be no connection to accept.
      pollfd waits = {socket_, POLLIN, 0};
      if (means_no_descriptors(errno) && ::poll(&waits, 1, 0) > 0 && !drop_longest_silent())
        accept_again_ms_ = now + 1000;
      return;
    }
    if (connections_.size() >= kMostConnections) drop_longest_silent();
    connections_.push_back({socket, HttpConversation(port_, handler_), now});
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
      return send_answers(connection);
    }
    connection.conversation.receive({buffer, static_cast<std::size_t>(n)});
    if (connection.conversation.is_full()) return send_answers(connection);
  }
}

// Answers as many requests as are there and as the socket takes.
bool HttpServer::send_answers(Connection& connection) {
  for (;;) {
    const std::string_view rest = connection.conversation.to_send();
    if (rest.empty()) return !connection.conversation.is_over();
    const ssize_t n = ::send(connection.socket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) connection.conversation.sent(static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

}  // namespace tenon::command
