// tenon policies: what there is to choose from.
#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "tenon/memory/policies.h"

namespace tenon::command {

Subcommand add_policies(CommandLine& app) {
  CommandLine& app_policies = app.add_subcommand("policies", "List the allocators, a line each");
  app_policies.footer("Exit status: 0, 2 for bad usage.");
  return {&app_policies, [] {
            std::size_t width = 0;
            for (const Policy& policy : policies()) width = std::max(width, policy.name.size());
            for (const Policy& policy : policies())
              fmt::print("{:<{}}  {}{}\n", policy.name, width, policy.summary,
                         policy.answers_to == "-" || policy.answers_to.empty()
                             ? ""
                             : fmt::format(" (like {})", policy.answers_to));
            return kSuccess;
          }};
}

}  // namespace tenon::command
