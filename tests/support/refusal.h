// The message of a refusal.
#pragma once

#include <string>

#include "tenon/base/error.h"

namespace tenon::testing {

// What the InvalidArgument says that `call` throws; "no InvalidArgument" where it throws none.
template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no InvalidArgument";
}

}  // namespace tenon::testing
