// Numbers in memory and what GLSL does not compute with them. Included by shaders that are compiled
// once for each way to compute: CLASS 0 in f32, 1 in f64, 2 in i64, 3 in i32. WIDE: the device has
// integers of 8, 16 and 64 bits; without, bytes are read and written in words.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#if WIDE
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#endif

#if CLASS == 0
#define NUMBER float
#elif CLASS == 1
#define NUMBER double
#elif CLASS == 2
#define NUMBER int64_t
#else
#define NUMBER int
#endif

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Fours { uvec4 at[]; };
#if WIDE
layout(buffer_reference, std430, buffer_reference_align = 1) buffer Bytes { uint8_t at[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Halves { uint16_t at[]; };
#endif

// The values of DType in dtype.h.
const uint kBool = 0, kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kF16 = 6, kBF16 = 7, kF32 = 8,
           kF64 = 9;

#if !WIDE
uint byte_of(uvec2 base, int at) {
  const uint from = base.x + uint(at);
  const uint high = base.y + (from < base.x ? 1u : 0u);
  return Words(uvec2(from & ~3u, high)).at[0] >> 8 * (from & 3) & 255;
}
// Neighbours share the word: bits are cleared, then set, so their order does not matter.
void set_byte(uvec2 base, int at, uint value) {
  const uint from = base.x + uint(at);
  Words word = Words(uvec2(from & ~3u, base.y + (from < base.x ? 1u : 0u)));
  const uint shift = 8 * (from & 3);
  atomicAnd(word.at[0], ~(255u << shift));
  atomicOr(word.at[0], (value & 255) << shift);
}
#else
uint byte_of(uvec2 base, int at) { return uint(Bytes(base).at[at]); }
void set_byte(uvec2 base, int at, uint value) { Bytes(base).at[at] = uint8_t(value & 255); }

uint half_bits(float x) {
  const uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return sign | 0x7e00u;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;
  if (rest < 0x38800000u) {  // below the normal ones, in steps of 2^-24
    return sign | uint(roundEven(uintBitsToFloat(rest) * 16777216.0));
  }
  return sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13;
}
float from_half(uint bits) {
  const uint rest = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  if (rest >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  const float small = float(rest) / 16777216.0;
  if (rest < 0x400u) return sign != 0 ? -small : small;
  return uintBitsToFloat(sign | (rest << 13) + 0x38000000u);
}
uint bfloat_bits(float x) {
  const uint bits = floatBitsToUint(x);
  return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u
                                            : bits + 0x7fffu + (bits >> 16 & 1) >> 16;
}
#endif

#if CLASS == 2
// lavapipe compares wrongly with a constant what it extends to 64 bits, unless by hand.
NUMBER extended(int x) { return int64_t(packUint2x32(uvec2(uint(x), uint(x >> 31)))); }
#else
NUMBER extended(int x) { return NUMBER(x); }
#endif

NUMBER load(uvec2 base, int at, uint dtype) {
  switch (dtype) {
    case kF32: return NUMBER(uintBitsToFloat(Words(base).at[at]));
    case kI32: return extended(int(Words(base).at[at]));
    case kBool:
    case kU8: return extended(int(byte_of(base, at)));
    case kI8: return extended(int(byte_of(base, at) << 24) >> 24);
#if WIDE
    case kI16: return extended(int(uint(Halves(base).at[at]) << 16) >> 16);
    case kF16: return NUMBER(from_half(uint(Halves(base).at[at])));
    case kBF16: return NUMBER(uintBitsToFloat(uint(Halves(base).at[at]) << 16));
    case kI64: return NUMBER(int64_t(packUint2x32(Pairs(base).at[at])));
#endif
#if CLASS == 1
    case kF64: return packDouble2x32(Pairs(base).at[at]);
#endif
  }
  return NUMBER(0);
}

// Towards zero; what no integer of 64 bits holds is the smallest of them.
#if WIDE
int64_t whole(NUMBER x) {
#if CLASS < 2
  if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0))
    return int64_t(packUint2x32(uvec2(0, 0x80000000u)));
#endif
  return int64_t(x);
}
int low_word(NUMBER x) { return int(unpackUint2x32(uint64_t(whole(x))).x); }
#elif CLASS == 0
// The low word of that integer.
int low_word(float x) {
  if (!(abs(x) < 9223372036854775808.0)) return 0;
  const float above = floor(abs(x) / 4294967296.0);
  const uint low = uint(abs(x) - above * 4294967296.0);
  return x < 0 ? -int(low) : int(low);
}
#else
int low_word(int x) { return x; }
#endif

void store(uvec2 base, int at, uint dtype, NUMBER x) {
  switch (dtype) {
    case kF32: Words(base).at[at] = floatBitsToUint(float(x)); break;
    case kI32: Words(base).at[at] = uint(low_word(x)); break;
    case kBool: set_byte(base, at, x != NUMBER(0) ? 1 : 0); break;
    case kU8:
    case kI8: set_byte(base, at, uint(low_word(x))); break;
#if WIDE
    case kI16: Halves(base).at[at] = uint16_t(uint(low_word(x)) & 65535); break;
    case kF16: Halves(base).at[at] = uint16_t(half_bits(float(x))); break;
    case kBF16: Halves(base).at[at] = uint16_t(bfloat_bits(float(x))); break;
    case kI64: Pairs(base).at[at] = unpackUint2x32(uint64_t(whole(x))); break;
#endif
#if CLASS == 1
    case kF64: Pairs(base).at[at] = unpackDouble2x32(x); break;
#endif
  }
}

#if CLASS < 2
#define L(x) NUMBER(x)  // of a literal in f64
// Drivers may give numbers where these are due.
NUMBER infinity() { return NUMBER(uintBitsToFloat(0x7f800000u)); }
NUMBER not_a_number() { return NUMBER(uintBitsToFloat(0x7fc00000u)); }

// What is not a number may pass through GLSL's own functions as one: callers ask first.
#if CLASS == 0
NUMBER exponential(NUMBER x) { return x > 88.8 ? infinity() : exp(x); }
// Of 1 + x, |x| <= 1/4: 2 artanh(x / (2 + x)).
NUMBER small_log1p(NUMBER x) {
  const NUMBER s = x / (2.0 + x), q = s * s;
  return 2.0 * s * (1.0 + q * (1.0 / 3.0 + q * (0.2 + q * (1.0 / 7.0 + q / 9.0))));
}
// Near 1 drivers may err by 2^-21, which may be all that there is.
NUMBER logarithm(NUMBER x) { return abs(x - 1.0) < 0.25 ? small_log1p(x - 1.0) : log(x); }
#else
NUMBER power_of_two(int n) { return packDouble2x32(uvec2(0, uint(n + 1023) << 20)); }
// x = k log 2 + r with |r| <= 0.35, then Taylor's series.
NUMBER exponential(NUMBER x) {
  if (x > 709.79) return infinity();
  if (x < -745.2) return L(0.0lf);
  const NUMBER k = roundEven(x * L(1.4426950408889634074lf));
  const NUMBER r = (x - k * L(6.93147180369123816490e-01lf)) - k * L(1.90821492927058770002e-10lf);
  NUMBER sum = L(1.0lf);
  for (int i = 14; i > 0; --i) sum = L(1.0lf) + sum * r / NUMBER(i);
  const int half_way = int(k) / 2;
  return sum * power_of_two(half_way) * power_of_two(int(k) - half_way);
}
// x = 2^e m with m near 1; log m = 2 artanh((m - 1) / (m + 1)).
NUMBER logarithm(NUMBER x) {
  int e = 0;
  if (x < L(2.2250738585072014e-308lf)) {
    x *= L(18014398509481984.0lf);
    e = -54;
  }
  uvec2 bits = unpackDouble2x32(x);
  e += int(bits.y >> 20) - 1023;
  NUMBER m = packDouble2x32(uvec2(bits.x, (bits.y & 0xfffffu) | 0x3ff00000u));
  if (m > L(1.41421356237309504880lf)) {
    m *= L(0.5lf);
    ++e;
  }
  const NUMBER s = (m - L(1.0lf)) / (m + L(1.0lf)), square = s * s;
  NUMBER sum = L(0.0lf);
  for (int i = 23; i > 1; i -= 2) sum = (sum + L(1.0lf) / NUMBER(i)) * square;
  return NUMBER(e) * L(6.93147180369123816490e-01lf) +
         (NUMBER(e) * L(1.90821492927058770002e-10lf) + L(2.0lf) * (s + s * sum));
}
#endif
#endif
