// What a reader may send to `tenon serve`.
#include <algorithm>
#include <string>

#include "http_conversation.h"
#include "target.h"

namespace tenon::fuzz {
namespace {

constexpr std::string_view kPage = "the page";

command::HttpAnswer serve(std::string_view path) {
  if (path == "/") return {200, "text/html", kPage};
  return {404, "text/plain", "not here\n"};
}

// All answers to the bytes, which come `piece` at a time.
std::string answers(std::string_view bytes, std::size_t piece) {
  const command::HttpHandler handler = serve;
  command::HttpConversation conversation(8080, handler);
  std::string sent;
  while (!conversation.is_over() && !bytes.empty()) {
    conversation.receive(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (true) {
      const std::string_view rest = conversation.to_send();
      if (rest.empty()) break;
      const std::size_t taken = std::min(piece, rest.size());
      sent.append(rest.substr(0, taken));
      conversation.sent(taken);
    }
  }
  return sent;
}

bool http(std::string_view bytes) {
  const std::string at_once = answers(bytes, bytes.size() + 1);
  require(answers(bytes, 7) == at_once, "answers do not depend on how a request is cut");
  require(at_once.empty() || at_once.starts_with("HTTP/1.1 "), "an answer is one of HTTP");
  const bool served = at_once.find(kPage) != at_once.npos;
  require(!served || bytes.find("127.0.0.1:8080") != bytes.npos ||
              bytes.find("localhost:8080") != bytes.npos,
          "the page is for requests that name this machine");
  return served;
}

const Registered kHttpTargets("http", http);

}  // namespace
}  // namespace tenon::fuzz
