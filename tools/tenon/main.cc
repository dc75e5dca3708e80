#include <fmt/format.h>

#include "tenon/memory/policies.h"

int main() {
  for (const tenon::Policy& policy : tenon::policies()) fmt::print("{}\n", policy.name);
}
