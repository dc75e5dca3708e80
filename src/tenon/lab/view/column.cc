#include "tenon/lab/view/column.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "tenon/base/check.h"

namespace tenon {
namespace {

std::string deflate_raw(std::string_view bytes) {
  constexpr int kLevel = 6;
  constexpr int kRawWindowBits = -15;  // no header: what browsers call "deflate-raw"
  constexpr int kMemoryLevel = 8;
  std::string out(compressBound(bytes.size()), '\0');
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kRawWindowBits, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  TENON_CHECK(result == Z_STREAM_END, "zlib did not finish");
  return out;
}

std::size_t bytes_for(std::uint64_t largest) {
  if (largest < (std::uint64_t{1} << 8)) return 1;
  if (largest < (std::uint64_t{1} << 16)) return 2;
  return largest < (std::uint64_t{1} << 32) ? 4 : 8;
}

}  // namespace

Column pack_numbers(std::string name, std::uint64_t count, bool delta,
                    const std::function<std::uint64_t(std::uint64_t)>& number) {
  Column column;
  column.name = std::move(name);
  column.delta = delta;
  column.count = count;
  std::uint64_t largest = 0;
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t now = number(i);
    TENON_CHECK(!delta || now >= before, "the numbers of a delta column fall");
    largest = std::max(largest, delta ? now - before : now);
    before = now;
  }
  const std::size_t width = bytes_for(largest);
  column.type = "u" + std::to_string(8 * width);

  before = 0;
  std::string planes;
  for (std::uint64_t from = 0; from < count; from += kPieceNumbers) {
    const std::uint64_t n = std::min(kPieceNumbers, count - from);
    planes.resize(n * width);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t now = number(from + i);
      std::uint64_t rest = delta ? now - before : now;
      before = now;
      for (std::size_t plane = 0; plane < width; ++plane, rest >>= 8)
        planes[plane * n + i] = static_cast<char>(rest & 0xff);
    }
    column.pieces.push_back(deflate_raw(planes));
  }
  return column;
}

Column pack_text(std::string name, std::string_view text) {
  Column column;
  column.name = std::move(name);
  column.type = "text";
  column.count = text.size();
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  for (std::size_t from = 0; from < text.size(); from += kPieceBytes)
    column.pieces.push_back(deflate_raw(text.substr(from, kPieceBytes)));
  return column;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (int digit = 0; digit < 4; ++digit) out += kDigits[three >> (18 - 6 * digit) & 63];
  }
  const std::size_t padding = (3 - bytes.size() % 3) % 3;
  for (std::size_t i = 0; i < padding; ++i) out[out.size() - 1 - i] = '=';
  return out;
}

}  // namespace tenon
