#include "training_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "commands.h"
#include "launcher.h"
#include "process.h"

namespace tenon::command {

std::string find_training_program() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  const fs::path folder = self.parent_path();
  for (const fs::path& place : {folder, folder.parent_path() / "libexec/tenon",
                                folder.parent_path() / "lib/tenon"}) {
    const fs::path program = place / kTrainingProgram;
    if (::access(program.c_str(), X_OK) == 0) return program.string();
  }
  return "";
}

bool needs_training_program(int argc, char** argv) {
  if (argc <= 1) return false;
  const std::string_view named = argv[1];
  if (named == "fleet") return launched_ranks() > 1;
  return std::any_of(std::begin(kTrainingCommands), std::end(kTrainingCommands),
                     [&](const TrainingCommand& command) { return named == command.name; });
}

void report_misuse_once(const std::string& message) {
  const std::string program = find_training_program();
  if (launched_ranks() == 1 || program.empty()) return;
  ::execl(program.c_str(), kTrainingProgram, kReportMisuse, message.c_str(), nullptr);
}

namespace {

// For OpenBLAS, which reads it when it is loaded. OpenBLAS 0.3.21 takes its kernels for AVX2 on
// processors that it does not know; those of SkylakeX run on all that have AVX-512.
void choose_blas_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    ::setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#endif
}

}  // namespace

int become_training_program(char** argv) {
  const std::string program = find_training_program();
  if (program.empty()) {
    tell(fmt::format("\"{}\" needs the program {}, which is not beside this one nor in "
                     "../libexec/tenon or ../lib/tenon: install it, or build the component tensor",
                     argv[1], kTrainingProgram));
    return kFailure;
  }
  // Products use one thread of OpenBLAS (kernels/cpu/gemm.cc); others would only map addresses.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
  choose_blas_kernels();
  ::execv(program.c_str(), argv);
  tell(fmt::format("{} cannot be run: {}", program, std::strerror(errno)));
  return kFailure;
}

}  // namespace tenon::command
