// A small web server for one reader on this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::command {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string_view body;  // must outlive the server
};

// HTTP/1.1 over 127.0.0.1: GET and HEAD, kept connections, several readers at once on one thread.
// Requests for other hosts are refused, so that a page elsewhere cannot reach it by a name that it
// points here. A request's head may have 16 KiB and no body. A connection that is silent for a
// minute is dropped; so is the one that has been silent longest when there are more than 64, or no
// descriptor is left for a new one. Source of the rules: RFC 9110 and 9112.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(std::string_view path)>;

  // Listens at once. Port 0: any that is free. Throws std::runtime_error with the system's reason.
  HttpServer(std::uint16_t port, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const { return port_; }
  // Serves until `stop` (a file descriptor) can be read.
  void run(int stop);

 private:
  struct Connection {
    int socket = -1;
    std::string in;
    std::string out;          // the head of the answer being sent
    std::string_view body;    // ... and its body
    std::size_t sent = 0;     // of both
    bool answering = false;
    bool last = false;        // ends after this answer
    std::int64_t active_ms = 0;
  };

  void accept_all(std::int64_t now_ms);
  bool drop_longest_silent();
  // Each returns false when the connection is over.
  bool receive(Connection& connection);
  bool advance(Connection& connection);
  enum class Sent : std::uint8_t { kAll, kPart, kFailed };
  static Sent send_answer(Connection& connection);
  bool begin_next(Connection& connection);
  void answer(Connection& connection, std::string_view method, std::string_view target,
              std::string_view headers);
  void begin(Connection& connection, const HttpAnswer& answer, bool with_body,
             std::string_view extra = "");

  int socket_ = -1;
  std::uint16_t port_ = 0;
  const Handler handler_;
  std::vector<Connection> connections_;
  std::int64_t accept_again_ms_ = 0;  // no descriptors before that
};

}  // namespace tenon::command
