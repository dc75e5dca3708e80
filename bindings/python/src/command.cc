// `python -m tenon`: the command's own main.
#include "command.h"
#include "gil.h"

#include <nanobind/stl/vector.h>

#include <cstdio>
#include <string>
#include <vector>

// tools/tenon/main.cc, under another name.
int tenon_command_main(int argc, char** argv);

namespace tenon::python {

void bind_command(nb::module_& module) {
  module.def(
      "run_command",
      [](const std::vector<nb::bytes>& given) {
        std::vector<std::string> arguments = {"tenon"};
        for (const nb::bytes& one : given) arguments.emplace_back(one.c_str(), one.size());
        const WithoutGil release;
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        const int status = tenon_command_main(static_cast<int>(arguments.size()), argv.data());
        std::fflush(stdout);
        return status;
      },
      nb::arg("arguments"));
}

}  // namespace tenon::python
