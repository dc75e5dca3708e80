// The command with and without a CUDA device, by way of the stand-in driver.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <string>

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status = 0;
  std::string out;  // with what went to stderr
};

Outcome with_driver(const std::string& driver, const std::string& setup,
                    const std::string& arguments) {
  const std::string line = "TENON_CUDA_DRIVER='" + driver + "' TENON_CUDA_STAND_IN='" + setup +
                           "' " + TENON_COMMAND + " " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(line.c_str(), "r");
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.out.append(buffer.data(), n);
  outcome.status = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

TEST(CudaCommand, InfoShowsTheDevices) {
  const Outcome info = with_driver(TENON_CUDA_STAND_IN_LIBRARY, "devices=2", "info");
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, HasSubstr("cuda:0  Tenon stand-in 0, 8 GiB, compute 9.0"));
  EXPECT_THAT(info.out, HasSubstr("cuda:1  Tenon stand-in 1"));
  EXPECT_THAT(info.out, HasSubstr("8 GiB free"));
  EXPECT_THAT(info.out, Not(HasSubstr("none:")));
}

TEST(CudaCommand, InfoSaysInOneLineWhyThereIsNoDevice) {
  for (const auto& [driver, setup, reason] :
       {std::array<std::string, 3>{"libno_driver.so.1", "", "no NVIDIA driver"},
        {TENON_CUDA_STAND_IN_LIBRARY, "devices=0", "CUDA_ERROR_NO_DEVICE"},
        {TENON_CUDA_STAND_IN_LIBRARY, "version=10020", "too old"}}) {
    const Outcome info = with_driver(driver, setup, "info");
    EXPECT_EQ(info.status, 0);
    EXPECT_THAT(info.out, HasSubstr("cuda    none: "));
    EXPECT_THAT(info.out, HasSubstr(reason));
    EXPECT_THAT(info.out, HasSubstr("sim:0"));
  }
}

}  // namespace
}  // namespace tenon
