// One reader's requests and the answers to them: the bytes of HTTP without a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tenon::command {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string_view body;  // must outlive the conversation
};
using HttpHandler = std::function<HttpAnswer(std::string_view path)>;

// HTTP/1.1: GET and HEAD. A request's head may have 16 KiB, and a request has no body. Requests for
// other hosts than this machine at `port` are refused, so that a page elsewhere cannot reach the
// server by a name that it points here. Source of the rules: RFC 9110 and 9112.
class HttpConversation {
 public:
  // The handler must outlive it.
  HttpConversation(std::uint16_t port, const HttpHandler& handler)
      : port_(port), handler_(&handler) {}

  void receive(std::string_view bytes) { in_.append(bytes); }
  // So much was received that answers come before more is read.
  bool is_full() const;
  // The rest of the answer in progress, or the start of the next one. Empty: there is none until
  // more is received, or ever if `is_over`.
  std::string_view to_send();
  void sent(std::size_t bytes) { sent_ += bytes; }
  bool is_answering() const { return answering_; }
  // The last answer was sent: the connection ends.
  bool is_over() const { return over_; }

 private:
  bool begin_next();
  void answer(std::string_view method, std::string_view target, std::string_view headers);
  void begin(const HttpAnswer& answer, bool with_body, std::string_view extra = "");

  std::uint16_t port_;
  const HttpHandler* handler_;
  std::string in_;
  std::string out_;        // the head of the answer in progress
  std::string_view body_;  // and its body
  std::size_t sent_ = 0;   // of both
  bool answering_ = false;
  bool last_ = false;      // no request is read after this answer
  bool over_ = false;
};

}  // namespace tenon::command
