// How much memory reading a file may take, by the file's own size.
#pragma once

#include <cstdint>
#include <string>

namespace tenon {

// What TENON_READ_LIMIT says ("8GiB") or, where it is not set, 16 x `file_bytes` + 256 MiB: several
// times what files that programs write need. Throws InvalidArgument for a value that is no size.
std::uint64_t read_limit_bytes(std::uint64_t file_bytes);

// The same for what a compressed file may unpack to; without the variable 40 x `packed_bytes` +
// 64 MiB. Recordings of programs compress to a tenth or a thirtieth.
std::uint64_t unpack_limit_bytes(std::uint64_t packed_bytes);

// The same for what has no size of its own, such as a pipe; without the variable 1 GiB.
std::uint64_t stream_limit_bytes();

// "TENON_READ_LIMIT=8GiB allows more": the next power of two above the limit given.
std::string how_to_raise(std::uint64_t limit_bytes);

}  // namespace tenon
