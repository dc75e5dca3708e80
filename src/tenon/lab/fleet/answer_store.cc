#include "tenon/lab/fleet/answer_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tenon/base/file_writer.h"
#include "tenon/base/hash.h"
#include "tenon/base/printable.h"
#include "tenon/base/write_target.h"
#include "tenon/trace/file_bytes.h"

namespace tenon {
namespace {

struct Contents {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;
};

// Where the next data are: a sparse file may seem to have terabytes of zeros.
off_t skip_hole(int file, off_t at) {
  const off_t data = ::lseek(file, at, SEEK_DATA);
  if (data >= 0) return data;
  return errno == ENXIO ? ::lseek(file, 0, SEEK_END) : ::lseek(file, at, SEEK_SET);
}

// Nothing of what cannot be read: reading it for the answer says why.
Contents contents_of(const std::string& path) {
  Contents found;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return found;
  struct stat info = {};
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
    std::vector<char> piece(1 << 20);
    RunningHash hash;
    for (off_t at = 0;;) {
      const off_t data = skip_hole(file, at);
      if (data != at) hash.add(static_cast<std::uint64_t>(data - at));
      const ssize_t got = ::read(file, piece.data(), piece.size());
      if (got <= 0) break;
      hash.add_bytes({piece.data(), static_cast<std::size_t>(got)});
      at = data + got;
      found.bytes = static_cast<std::uint64_t>(at);
    }
    found.hash = hash.value();
  }
  ::close(file);
  return found;
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::system_error(error, folder + ": the folder cannot be made");
}

// To open a FIFO would wait for its other end.
void require_file_or_nothing(const std::string& place) {
  std::error_code unknown;  // opening it says what is wrong
  const auto found = std::filesystem::status(place, unknown);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found))
    throw std::runtime_error(place + ": an answer belongs here, and this is not a file: remove it "
                                     "or take another folder of results (--results)");
}

std::string contents_at(const std::string& place) {
  std::ifstream file(place, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_answer(const std::string& place, const std::string& key, const FileAnswer& answer) {
  make_folder(folder_of(place));
  write_whole_file(place, key + file_answer_json(answer) + "\n");
}

std::optional<FileAnswer> answer_in(std::string_view contents) {
  const std::size_t end = contents.find('\n');
  if (end == contents.npos) return std::nullopt;
  return parse_file_answer(std::string(contents.substr(end + 1)));
}

}  // namespace

AnswerStore::AnswerStore(std::string folder, const FileQuestion& question)
    : folder_(std::move(folder)), question_(question) {
  make_folder(folder_);
  FileWriter::check(folder_ + "/answer");
}

// Writing a file reads its folder once, so each folder has few of them.
std::string AnswerStore::place_of(const std::string& path) const {
  const std::string name = fmt::format("{:016x}", hash_of_text(path));
  std::string place = fmt::format("{}/{}/{}", folder_, name.substr(0, 2), name.substr(2));
  require_file_or_nothing(place);
  return place;
}

std::string AnswerStore::key_of(const std::string& path) const {
  const Contents contents = contents_of(path);
  const std::uint64_t settings =
      hash_of_text(fmt::format("{}", fmt::join(question_.settings(), ";")));
  return fmt::format("{}; settings {:016x}; path {:016x}; {} bytes; contents {:016x}\n",
                     question_.text(), settings, hash_of_text(path), contents.bytes, contents.hash);
}

void AnswerStore::answer(const std::string& path) const {
  const std::string key = key_of(path), place = place_of(path);
  const std::string kept = contents_at(place);
  if (kept.starts_with(key) && answer_in(kept)) return;
  try {
    write_answer(place, key, answer_file(path, question_));
  } catch (const FileUnreadable& error) {
    fail(path, one_line(error.what()));
  }
}

void AnswerStore::fail(const std::string& path, const std::string& reason) const {
  write_answer(place_of(path), "no answer\n", no_answer(reason));
}

std::optional<FileAnswer> AnswerStore::load(const std::string& path) const {
  return answer_in(contents_at(place_of(path)));
}

}  // namespace tenon
