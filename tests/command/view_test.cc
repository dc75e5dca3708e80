// tenon view and tenon serve, as somebody at a shell and a browser meet them.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/temporary.h"
#include "trace/pickle_writer.h"

extern char** environ;

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TemporaryFile;
using testing::TemporaryFolder;
using Json = nlohmann::json;
using testing::Outcome;
using testing::kGpt2;
using testing::tenon_command;

// For texts that nobody wants to read when a test fails.
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

TEST(ViewCommand, WritesOneFileThatNeedsNoOther) {
  const TemporaryFile page(".html");
  const Outcome view = tenon_command("view " + kGpt2 + " -o " + page.path());
  ASSERT_EQ(view.status, 0) << view.err;
  EXPECT_EQ(view.out, page.path() + "\n");
  const std::string html = page.contents();
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(contains(html, "default-src 'none'"));
  EXPECT_FALSE(contains(html, "%TENON_"));
  EXPECT_FALSE(std::regex_search(html, std::regex("<(script|img|iframe)[^>]{0,200} src=")));
  EXPECT_FALSE(std::regex_search(html, std::regex("<link[^>]{0,200}href=")));
  EXPECT_EQ(occurrences(html, "<script"), occurrences(html, "</script"));
}

TEST(ViewCommand, SaysWhatReplaySays) {
  const Json view = Json::parse(tenon_command("view --json " + kGpt2).out);
  const Json replay = Json::parse(
      tenon_command("replay --json --passes 0 --policy caching,expandable,stitched,plan " +
                    kGpt2)
          .out);
  ASSERT_EQ(view["policies"].size(), replay.size() + 1);
  for (std::size_t i = 0; i < replay.size(); ++i) {
    EXPECT_EQ(view["live_peak_bytes"], replay[i]["live_peak_bytes"]);
    EXPECT_EQ(view["events"], replay[i]["events"]);
    EXPECT_EQ(view["policies"][i + 1]["policy"], replay[i]["policy"]);
    EXPECT_EQ(view["policies"][i + 1]["reserved_peak_bytes"], replay[i]["reserved_peak_bytes"]);
  }
  // The recording itself comes first: what PyTorch held then, which the same expectations tell.
  EXPECT_EQ(view["policies"][0]["policy"], "recorded");
  EXPECT_EQ(view["policies"][0]["reserved_peak_bytes"], 8082423808);
  EXPECT_EQ(view["grouped_by"], "call site");
  EXPECT_EQ(view["largest_at_peak"][0]["name"],
            "lm_train train.py:24 via forward transformers/activations.py:66");
}

TEST(ViewCommand, NamesInTheTraceCannotBreakOut) {
  using namespace testing::pickled;
  const std::string evil = "</script><script>document.title='broken'</script><!--<img src=x>";
  const TemporaryFile snapshot(
      ".pickle",
      file(dict({{"segments", list({})},
                 {"device_traces",
                  list({list({entry_with("alloc", 4096, 512, 1,
                                         {{"frames", list({frame(evil, "a.py", 3)})}}),
                              entry_with("oom", 0, 1 << 20, 2,
                                         {{"frames", list({frame(evil, "a.py", 4)})}})})})}})));
  const TemporaryFile page(".html");
  const TemporaryFile plain_page(".html");
  const Outcome view = tenon_command("view " + snapshot.path() + " -o " + page.path());
  ASSERT_EQ(view.status, 0) << view.err;
  ASSERT_EQ(tenon_command("view " + kGpt2 + " -o " + plain_page.path()).status, 0);
  const std::string html = page.contents();
  EXPECT_FALSE(contains(html, "<script>document"));
  EXPECT_FALSE(contains(html, "<img"));
  EXPECT_EQ(occurrences(html, "<script"), occurrences(html, "</script"));
  EXPECT_EQ(occurrences(html, "<!--"), occurrences(plain_page.contents(), "<!--"));
  const Json figures = Json::parse(tenon_command("view --json " + snapshot.path()).out);
  EXPECT_EQ(figures["largest_at_peak"][0]["name"], evil + " a.py:3");
  EXPECT_EQ(figures["out_of_memory"][0]["requested_bytes"], 1 << 20);
}

TEST(ViewCommand, SaysInOneLineWhatIsWrong) {
  const auto refused = [](const std::string& arguments, const std::string& why, int status = 2) {
    const Outcome outcome = tenon_command(arguments);
    EXPECT_EQ(outcome.status, status) << arguments;
    EXPECT_THAT(outcome.err, StartsWith("tenon: ")) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << arguments;
  };
  refused("view", "TRACE");
  refused("view /no/such.csv", "/no/such.csv");
  refused("view --policy fast " + kGpt2, "the policies are");
  refused("view --capacity 0 " + kGpt2, "at least one byte");
  refused("view --device 3 " + kGpt2, "no events of device 3");
  refused("view -o /no/dir/x.html " + kGpt2, "/no/dir/x.html", 1);
  refused("serve /no/such.csv", "/no/such.csv");
}

TEST(ViewCommand, ReplaysWithinACapacity) {
  const Json figures =
      Json::parse(tenon_command("view --json --policy system --capacity 6GiB " + kGpt2).out);
  EXPECT_EQ(figures["capacity_bytes"], std::uint64_t{6} << 30);
  EXPECT_EQ(figures["policies"][1]["out_of_memory"], true);
  EXPECT_GT(figures["policies"][1]["out_of_memory_event"], 0);
}

// As viewer/vite.config.ts does it.
std::string stamp_of_sources() {
  namespace fs = std::filesystem;
  const fs::path viewer = fs::path(TENON_SOURCE_DIR) / "viewer";
  std::vector<std::string> files = {"index.html", "package-lock.json", "tsconfig.json",
                                    "vite.config.ts"};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(viewer / "src"))
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), viewer).string());
  std::sort(files.begin(), files.end());
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::string& file : files) {
    std::ifstream in(viewer / file, std::ios::binary);
    const std::string contents(std::istreambuf_iterator<char>(in), {});
    for (const char c : file + "\n" + contents)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << hash;
  return out.str();
}

TEST(ViewCommand, ShipsThePageThatItsSourcesBuildTo) {
  const TemporaryFile page(".html");
  ASSERT_EQ(tenon_command("view --policy none " + kGpt2 + " -o " + page.path()).status, 0);
  EXPECT_TRUE(contains(page.contents(), "<meta name=\"tenon-sources\" content=\"" +
                                            stamp_of_sources() + "\">"))
      << "viewer/dist/viewer.html is not built from viewer/src: run npm run build in viewer/";
}

// scripts/view_picture.sh wrote into each picture what it was drawn from.
TEST(ViewCommand, ThePicturesOfThePageAreOfToday) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  const TemporaryFile page(".html");
  const std::string root = TENON_SOURCE_DIR;
  ASSERT_EQ(tenon_command("view data/snapshots/gpt2.pickle -o " + page.path(), "cd " + root + ";")
                .status, 0);
  const TemporaryFile stale(".txt");
  std::system(("cd " + root + " && python3 scripts/picture_stamp.py --check " + page.path() +
               " docs/view.png docs/view-dark.png >" + stale.path() + " 2>&1").c_str());
  EXPECT_EQ(stale.contents(), "");
}

// A `tenon serve` that is running.
class Served {
 public:
  // `limits`: shell commands that run before it.
  explicit Served(const std::string& trace, const std::string& limits = "") {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    std::vector<std::string> words = {
        "/bin/sh", "-c", limits + "exec " TENON_COMMAND " serve --policy caching " + trace};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(::posix_spawn(&child_, "/bin/sh", &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    for (char c; ::read(ends[0], &c, 1) == 1 && c != '\n';) line_ += c;
    ::close(ends[0]);
    std::smatch match;
    if (std::regex_search(line_, match, std::regex("http://127\\.0\\.0\\.1:([0-9]+)/")))
      port_ = static_cast<std::uint16_t>(std::stoi(match[1]));
  }
  ~Served() {
    if (child_ > 0) stop();
  }
  int stop() {
    ::kill(child_, SIGINT);
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::uint16_t port() const { return port_; }
  std::string host() const { return "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n"; }

  // A connection, and what was sent on it.
  int open(const std::string& request) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    return socket;
  }
  // Sends these bytes and returns everything until the server ends the connection.
  std::string talk(const std::string& request) const {
    const int socket = open(request);
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(n));
    ::close(socket);
    return answer;
  }
  std::string get(const std::string& path) const {
    return talk("GET " + path + " HTTP/1.1\r\n" + host() + "Connection: close\r\n\r\n");
  }

 private:
  pid_t child_ = 0;
  std::string line_;
  std::uint16_t port_ = 0;
};

std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

TEST(ServeCommand, ServesThePageAndItsPieces) {
  Served served(kGpt2);
  ASSERT_NE(served.port(), 0);
  const std::string page = served.get("/");
  const std::string head = page.substr(0, page.find("\r\n\r\n") + 2);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: " + std::to_string(body(page).size()) + "\r\n"));
  EXPECT_FALSE(contains(page, "data-piece=\"size/0\""));
  EXPECT_THAT(served.get("/columns/size/0"), StartsWith("HTTP/1.1 200 OK\r\n"));
  for (const char* path : {"/columns/size/1", "/columns/size/-1", "/columns/size/0x", "/columns/",
                           "/columns/none/0", "/etc/passwd", "/../etc/passwd", "*"})
    EXPECT_THAT(served.get(path), StartsWith("HTTP/1.1 404 ")) << path;
  EXPECT_EQ(served.stop(), 0);
}

TEST(ServeCommand, KeepsToHttp) {
  Served served(kGpt2);
  ASSERT_NE(served.port(), 0);
  const std::string close = "Connection: close\r\n\r\n";
  const std::string head = served.talk("HEAD / HTTP/1.1\r\n" + served.host() + close);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(body(head), "");
  // Two requests in one go, on one connection.
  const std::string two =
      served.talk("GET /none HTTP/1.1\r\n" + served.host() +
                  "\r\nGET /columns/size/0 HTTP/1.1\r\n" + served.host() + close);
  EXPECT_THAT(two, StartsWith("HTTP/1.1 404 "));
  EXPECT_EQ(occurrences(two, "HTTP/1.1 200 OK\r\n"), 1u);
  EXPECT_THAT(served.talk("POST / HTTP/1.1\r\n" + served.host() + close),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD")));
  EXPECT_THAT(served.talk("GET / HTTP/1.1\r\nHost: evil.example\r\n" + close),
              StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(served.talk("GET / HTTP/1.1\r\n" + close), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(served.talk("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(served.talk("GET / HTTP/2.0\r\n" + served.host() + close),
              StartsWith("HTTP/1.1 505 "));
  EXPECT_THAT(served.talk("GET / HTTP/1.1\r\n" + served.host() + "Content-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(served.talk("GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(served.talk("GET / HTTP/1.0\r\n" + served.host() + "\r\n"),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(served.get("/columns/size/0"), StartsWith("HTTP/1.1 200 OK\r\n"));  // still there
}

// Whatever another reader could take for a body, or for no body.
TEST(ServeCommand, RefusesFieldsThatCanBeReadInTwoWays) {
  Served served(kGpt2);
  ASSERT_NE(served.port(), 0);
  const std::string get = "GET / HTTP/1.1\r\n" + served.host();
  const auto is_refused = [&](const std::string& fields, const char* status) {
    const std::string answer =
        served.talk(get + fields + "\r\nGET /columns/size/0 HTTP/1.1\r\n" + served.host() +
                    "Connection: close\r\n\r\n");
    EXPECT_THAT(answer.substr(0, 40), StartsWith(std::string("HTTP/1.1 ") + status)) << fields;
    EXPECT_EQ(occurrences(answer, "HTTP/1.1 "), 1u) << fields;
  };
  is_refused("Content-Length: 5\r\nContent-Length: 5\r\n", "400 ");
  is_refused("Content-Length: 0\r\nContent-Length: 40\r\n", "400 ");
  is_refused("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "413 ");
  is_refused("Content-Length : 40\r\n", "400 ");
  is_refused(" Content-Length: 40\r\n", "400 ");
  is_refused("nonsense\r\n", "400 ");
  is_refused(served.host(), "400 ");
}

TEST(ServeCommand, AnswersWhileOthersSayNothing) {
  Served served(kGpt2);
  ASSERT_NE(served.port(), 0);
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(served.open("GET / HT"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(served.get("/columns/size/0"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));  // 60 drop all
  for (const int socket : silent) ::close(socket);
}

TEST(ServeCommand, LackOfDescriptorsDropsTheSilent) {
  Served served(kGpt2, "ulimit -n 20; ");
  ASSERT_NE(served.port(), 0);
  std::vector<int> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(served.open("GET / HT"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(served.get("/columns/size/0"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const int socket : silent) ::close(socket);
  EXPECT_EQ(served.stop(), 0);
}

TEST(ServeCommand, NeedsADescriptorForAConnection) {
  const TemporaryFile errors(".err");
  // 0 to 2, a pipe of two ends, and the socket that listens.
  const std::string limit = "exec 3<&- 4<&- 5<&- 6<&-; ulimit -n ";
  const std::string serve = "exec " TENON_COMMAND " serve --policy caching " + kGpt2;
  const int status =
      std::system(("(" + limit + "6; " + serve + ") 2>" + errors.path()).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(errors.contents(),
            "tenon: no connection can be accepted, since this process may open no more files: "
            "raise that limit (ulimit -n)\n");
  Served served(kGpt2, limit + "7; ");
  ASSERT_NE(served.port(), 0);
  EXPECT_THAT(served.get("/columns/size/0"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

// Each in turn: a stack of 256 KiB holds no recursion over the requests that came at once.
TEST(ServeCommand, AnswersManyRequestsThatComeAtOnce) {
  Served served(kGpt2, "ulimit -s 256; ");
  ASSERT_NE(served.port(), 0);
  constexpr std::size_t kRequests = 1000;
  std::string requests;
  for (std::size_t i = 0; i < kRequests; ++i)
    requests += "HEAD /none HTTP/1.1\r\n" + served.host() + "\r\n";
  requests += "HEAD /none HTTP/1.1\r\n" + served.host() + "Connection: close\r\n\r\n";
  EXPECT_EQ(occurrences(served.talk(requests), "HTTP/1.1 404 "), kRequests + 1);
}

}  // namespace
}  // namespace tenon
