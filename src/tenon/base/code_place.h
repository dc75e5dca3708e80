// What a place in the program's code is called.
#pragma once

#include <string>

namespace tenon {

// One line for each function that the return address stands for (several where calls were inlined),
// innermost first: "    at name (file:line)" where the program has debug information and Tenon was
// built with libbacktrace, else "    at name + offset (program)" by the dynamic symbols, else the
// bare offset, for a tool. Slow: the first call reads the debug information. Thread-safe.
std::string describe_code(void* return_address);

// Whether files and lines can be found at all, given debug information.
bool code_has_lines();

}  // namespace tenon
