// Models that `tenon train --save` did not write.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "saved_run.h"
#include "target.h"
#include "tenon/base/error.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/inference_mode.h"

namespace tenon::fuzz {
namespace {

// A file that has the bytes and no name in a folder.
class UnnamedFile {
 public:
  explicit UnnamedFile(std::string_view bytes) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    const auto size = static_cast<::ssize_t>(bytes.size());
    require(file_ >= 0 && ::write(file_, bytes.data(), bytes.size()) == size, "a file is there");
  }
  ~UnnamedFile() { ::close(file_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  const int file_;
};

// What is accepted can be run.
bool checkpoint(std::string_view bytes) {
  const UnnamedFile file(bytes);
  try {
    const command::TextModel text = command::load_text_model(file.path());
    const InferenceMode inference;
    const std::int64_t length = std::min<std::int64_t>(4, text.model->options().length);
    const Tensor logits = (*text.model)(zeros({1, length}, DType::kI64));
    require(logits.size(-1) == text.vocabulary.size(), "a number for each character");
    return true;
  } catch (const ParseError&) {
    return false;
  }
}

const Registered kTrainingTargets("checkpoint", checkpoint);

}  // namespace
}  // namespace tenon::fuzz
