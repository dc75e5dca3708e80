// A small web server for one reader on this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "http_conversation.h"

namespace tenon::command {

// HTTP over 127.0.0.1 (http_conversation.h): kept connections, several readers at once on one
// thread. A connection that is silent for a minute is dropped; so is the one that has been silent
// longest when there are more than 64, or no descriptor is left for a new one.
class HttpServer {
 public:
  // Listens at once. Port 0: any that is free. Throws std::runtime_error with the system's reason,
  // and where no descriptor is left for a connection.
  HttpServer(std::uint16_t port, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const { return port_; }
  // Serves until `stop` (a file descriptor) can be read.
  void run(int stop);

 private:
  struct Connection {
    int socket;
    HttpConversation conversation;
    std::int64_t active_ms;
  };

  void require_descriptor();
  void accept_all(std::int64_t now_ms);
  bool drop_longest_silent();
  static short wanted_events(const Connection& connection);
  // Each returns false when the connection is over.
  static bool receive(Connection& connection);
  static bool send_answers(Connection& connection);

  int socket_ = -1;
  std::uint16_t port_ = 0;
  const HttpHandler handler_;
  std::vector<Connection> connections_;
  std::int64_t accept_again_ms_ = 0;  // no descriptors before that
};

}  // namespace tenon::command
