// Element-wise functions of up to three operands with strides, of up to four dimensions. GROUP:
// which functions. Drivers take time by what a shader holds, also by what no constant chooses.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 128) in;

layout(constant_id = 0) const uint kFunction = 0;  // DeviceFunction in device_functions.h
layout(constant_id = 1) const uint kDims = 0;      // 0: all operands dense, of one shape
layout(constant_id = 2) const uint kDTypes = 0;    // eight bits each: target, a, b, c
layout(constant_id = 3) const uint kNumbers = 0;   // bits of the operands that are numbers

layout(push_constant, std430) uniform Arguments {
  uvec2 bases[4];  // addresses: target, a, b, c
  uvec2 first;     // of the function, or an operand that is a number, in the class
  uvec2 second;
  uint count;
  uint sizes[3];   // innermost first; the outermost is what is left
  ivec4 strides[4];  // of each operand, in elements
};

uint dtype_of(uint operand) { return kDTypes >> 8 * operand & 255; }

NUMBER number(uvec2 bits) {
#if CLASS == 0
  return uintBitsToFloat(bits.x);
#elif CLASS == 1
  return packDouble2x32(bits);
#elif CLASS == 2
  return int64_t(packUint2x32(bits));
#else
  return int(bits.x);
#endif
}

#define PLAIN 0         // arithmetic
#define EXPONENTIALS 1  // and logarithms
#define CIRCLES 2       // powers, the circle's functions, the error function
#define MOVES 3         // elements as they are

#if CLASS >= 2
#if GROUP == PLAIN
NUMBER rest_of(NUMBER a, NUMBER b) {
  if (b == 0 || b == -1) return 0;
  const NUMBER rest = abs(a) % abs(b);
  return a < 0 ? -rest : rest;
}
NUMBER quotient(NUMBER a, NUMBER b) { return b == 0 ? 0 : b == -1 ? -a : (a - rest_of(a, b)) / b; }
#endif
#else
bool is_negative(NUMBER x) {
#if CLASS == 0
  return floatBitsToInt(x) < 0;
#else
  return int(unpackDouble2x32(x).y) < 0;
#endif
}
#if GROUP == PLAIN
#if CLASS == 0
#define BITS uint
const int kMantissa = 23, kExponents = 255, kBias = 127;
BITS bits_of(NUMBER x) { return floatBitsToUint(x); }
#else
#define BITS uint64_t
const int kMantissa = 52, kExponents = 2047, kBias = 1023;
BITS bits_of(NUMBER x) { return packUint2x32(unpackDouble2x32(x)); }
#endif
int exponent_of(BITS bits) { return max(int(bits >> kMantissa) & kExponents, 1); }
BITS mantissa_of(BITS bits) {
  const BITS rest = bits & ((BITS(1) << kMantissa) - BITS(1));
  return (int(bits >> kMantissa) & kExponents) == 0 ? rest : rest | BITS(1) << kMantissa;
}
// Exact: a long division of the mantissas, by as many bits at once as an integer has beside them.
NUMBER rest_of(NUMBER a, NUMBER b) {
  if (isnan(a) || isnan(b) || isinf(a) || b == L(0.0lf)) return not_a_number();
  if (abs(a) < abs(b)) return a;
  const BITS divisor = mantissa_of(bits_of(b));
  if (divisor == BITS(0)) return not_a_number();
  BITS rest = mantissa_of(bits_of(a)) % divisor;
  for (int left = exponent_of(bits_of(a)) - exponent_of(bits_of(b)); left > 0;) {
    const int by = min(left, kMantissa == 23 ? 8 : 11);
    rest = (rest << by) % divisor;
    left -= by;
  }
  const NUMBER size = ldexp(NUMBER(rest), exponent_of(bits_of(b)) - kBias - kMantissa);
  return is_negative(a) ? -size : size;
}
NUMBER floor_quotient(NUMBER a, NUMBER b) {
  if (b == L(0.0lf)) return a / b;
  const NUMBER rest = rest_of(a, b);
  NUMBER quotient = (a - rest) / b;
  if (rest != L(0.0lf) && (rest < L(0.0lf)) != (b < L(0.0lf))) quotient -= L(1.0lf);
  if (quotient == L(0.0lf)) return is_negative(a) == is_negative(b) ? L(0.0lf) : -L(0.0lf);
  const NUMBER whole_part = floor(quotient);
  return quotient - whole_part > L(0.5lf) ? whole_part + L(1.0lf) : whole_part;
}
#elif GROUP == EXPONENTIALS
const int kTerms = CLASS == 0 ? 9 : 17;  // of expm1

NUMBER log_of(NUMBER x) {
  if (isnan(x) || x < L(0.0lf)) return not_a_number();
  return x == L(0.0lf) ? -infinity() : isinf(x) ? x : logarithm(x);
}
// Without cancellation near 0 (Kahan).
NUMBER log1p_of(NUMBER x) {
#if CLASS == 0
  if (abs(x) < 0.25) return small_log1p(x);
#endif
  const NUMBER u = L(1.0lf) + x;
  if (u == L(1.0lf) || (isinf(u) && u > L(0.0lf))) return x;
  return log_of(u) * (x / (u - L(1.0lf)));
}
NUMBER expm1_of(NUMBER x) {
  if (abs(x) > L(0.5lf)) return exponential(x) - L(1.0lf);
  NUMBER sum = L(1.0lf);
  for (int i = kTerms; i > 1; --i) sum = L(1.0lf) + sum * x / NUMBER(i);
  return sum * x;
}
NUMBER hyperbolic_tangent(NUMBER x) {
  const NUMBER e = expm1_of(L(2.0lf) * min(abs(x), L(20.0lf))), size = e / (e + L(2.0lf));
  return is_negative(x) ? -size : size;
}
NUMBER hyperbolic_cosine(NUMBER x) {
  const NUMBER e = exponential(L(0.5lf) * abs(x));
  return L(0.5lf) * e * e + L(0.5lf) / e / e;
}
NUMBER hyperbolic_sine(NUMBER x) {
  const bool is_large = abs(x) > L(20.0lf);
  const NUMBER e = is_large ? exponential(L(0.5lf) * abs(x)) : expm1_of(abs(x));
  const NUMBER size = L(0.5lf) * (is_large ? e * e : e + e / (e + L(1.0lf)));
  return is_negative(x) ? -size : size;
}
NUMBER sigmoid(NUMBER x) {
  const NUMBER e = exponential(-abs(x));
  return x >= L(0.0lf) ? L(1.0lf) / (L(1.0lf) + e) : e / (L(1.0lf) + e);
}
NUMBER log1p_exp(NUMBER x) { return max(x, L(0.0lf)) + log1p_of(exponential(-abs(x))); }

NUMBER gelu_inner(NUMBER x) {
  return L(0.79788456080286535588lf) * (x + L(0.044715lf) * x * x * x);
}
#elif GROUP == CIRCLES
#include "sine.glsl"

const int kErrorTerms = CLASS == 0 ? 26 : 60;  // of erf
const int kLevels = CLASS == 0 ? 24 : 60;      // of erfc

// 2 / sqrt(pi) exp(-x^2) times a series of positive terms.
NUMBER small_error_function(NUMBER x) {
  NUMBER term = x, sum = x;
  for (int i = 1; i < kErrorTerms; ++i) {
    term *= L(2.0lf) * x * x / NUMBER(2 * i + 1);
    sum += term;
  }
  return L(1.12837916709551257390lf) * exponential(-x * x) * sum;
}
// A continued fraction. Requires: z >= 2.
NUMBER large_error_rest(NUMBER z) {
  NUMBER fraction = L(0.0lf);
  for (int i = kLevels; i > 0; --i) fraction = L(0.5lf) * NUMBER(i) / (z + fraction);
  return exponential(-z * z) / ((z + fraction) * L(1.77245385090551602730lf));
}
NUMBER error_function(NUMBER x) {
  if (abs(x) < L(2.0lf)) return small_error_function(x);
  return sign(x) * (abs(x) > L(6.0lf) ? L(1.0lf) : L(1.0lf) - large_error_rest(abs(x)));
}
NUMBER error_rest(NUMBER x) {
  if (abs(x) < L(2.0lf)) return L(1.0lf) - small_error_function(x);
  return x > L(0.0lf) ? large_error_rest(x) : L(2.0lf) - large_error_rest(-x);
}
NUMBER normal_distribution(NUMBER x) {
  return L(0.5lf) * (L(1.0lf) + error_function(x * L(0.70710678118654752440lf)));
}
// Twice by the half angle, then Taylor's series.
NUMBER arc_tangent(NUMBER x) {
  const bool is_large = abs(x) > L(1.0lf);
  NUMBER t = is_large ? L(1.0lf) / x : x;
  t = t / (L(1.0lf) + sqrt(L(1.0lf) + t * t));
  t = t / (L(1.0lf) + sqrt(L(1.0lf) + t * t));
  NUMBER sum = L(0.0lf);
  for (int i = 25; i > 0; i -= 2) sum = L(1.0lf) / NUMBER(i) - t * t * sum;
  sum *= L(4.0lf) * t;
  return is_large ? sign(x) * L(1.57079632679489661923lf) - sum : sum;
}
NUMBER arc_tangent2(NUMBER y, NUMBER x) {
  if (isnan(x) || isnan(y)) return not_a_number();
  const NUMBER pi = L(3.14159265358979323846lf);
  const NUMBER sign_y = is_negative(y) ? L(-1.0lf) : L(1.0lf);
  NUMBER angle;
  if (isinf(x) && isinf(y)) angle = pi / L(4.0lf);
  else if (x == L(0.0lf) && y == L(0.0lf)) angle = L(0.0lf);
  else if (x == L(0.0lf)) angle = pi / L(2.0lf);
  else angle = arc_tangent(abs(y) / abs(x));
  return sign_y * (is_negative(x) ? pi - angle : angle);
}
NUMBER power(NUMBER a, NUMBER b) {
  if (b == L(0.0lf) || a == L(1.0lf)) return L(1.0lf);
  if (isnan(a) || isnan(b)) return not_a_number();
  const bool is_whole = b == floor(b), is_odd = is_whole && b * L(0.5lf) != floor(b * L(0.5lf));
  if (b == L(0.5lf)) return a < L(0.0lf) ? not_a_number() : sqrt(a);
  if (is_whole && abs(b) <= L(64.0lf)) {
    NUMBER result = L(1.0lf), base = a;
    for (uint n = uint(abs(b)); n != 0; n >>= 1) {
      if ((n & 1) != 0) result *= base;
      base *= base;
    }
    return b < L(0.0lf) ? L(1.0lf) / result : result;
  }
  if (a < L(0.0lf) && !is_whole && !isinf(a)) return not_a_number();
  const NUMBER size = abs(a);
  NUMBER result;
  if (size == L(1.0lf)) result = L(1.0lf);
  else if (size == L(0.0lf) || isinf(size) || isinf(b))
    result = (size > L(1.0lf)) == (b > L(0.0lf)) ? infinity() : L(0.0lf);
  else result = exponential(b * logarithm(size));
  return a < L(0.0lf) && is_odd ? -result : result;
}
#endif
#endif

NUMBER truth(bool holds) { return NUMBER(holds ? 1 : 0); }

#if GROUP != MOVES
// Of two operands: Binary in ops/binary.h; from 100 on derivatives, of the gradient and what was
// saved.
NUMBER of_two(NUMBER x, NUMBER y) {
  const NUMBER zero = NUMBER(0);
  switch (kFunction) {
#if GROUP == PLAIN
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 14: return truth(x == y);
    case 15: return truth(x != y);
    case 16: return truth(x < y);
    case 17: return truth(x <= y);
    case 18: return truth(x > y);
    case 19: return truth(x >= y);
    case 20: return truth(x != zero && y != zero);
    case 21: return truth(x != zero || y != zero);
    case 22: return truth((x != zero) != (y != zero));
#if CLASS < 2
    case 3: return x / y;
    case 4: return isnan(x) || x > y ? x : y;
    case 5: return isnan(x) || x < y ? x : y;
    case 8: return rest_of(x, y);
    case 9: {
      const NUMBER rest = rest_of(x, y);
      return rest != zero && (rest < zero) != (y < zero) ? rest + y : rest;
    }
    case 10: return floor_quotient(x, y);
    case 100: return y <= zero ? zero : x;
    case 101: return x * (L(1.0lf) - y * y);
    case 102: return x * y * (L(1.0lf) - y);
    case 106: return y == zero ? zero : y > zero ? x : -x;
    case 107: return x * y * L(2.0lf);
    case 108: return y < number(first) || y > number(second) ? zero : x;
    case 109: return x / (y * L(2.0lf));
    case 110: return x * y * y * y * L(-0.5lf);
    case 111: return -x * y * y;
    case 112: return y > zero ? x : x * number(first);
    case 113: return y <= number(first) || y >= number(second) ? zero : x;
    case 114: return y <= L(-3.0lf) ? zero : y < L(3.0lf) ? x * (y / L(3.0lf) + L(0.5lf)) : x;
#else
    case 4: return max(x, y);
    case 5: return min(x, y);
    case 6: {
      if (y < 0) return x == 1 ? NUMBER(1) : x == -1 ? NUMBER((y & 1) == 0 ? 1 : -1) : zero;
      NUMBER result = 1, base = x;
      for (NUMBER n = y; n != 0; n >>= 1) {
        if ((n & 1) != 0) result *= base;
        base *= base;
      }
      return result;
    }
    case 8: return rest_of(x, y);
    case 9: {
      const NUMBER rest = rest_of(x, y);
      return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    }
    case 10: {
      const bool down = rest_of(x, y) != 0 && (x < 0) != (y < 0);
      return quotient(x, y) - NUMBER(down ? 1 : 0);
    }
    case 11: return x & y;
    case 12: return x | y;
    case 13: return x ^ y;
#endif
#elif GROUP == EXPONENTIALS
    case 103: {
      const NUMBER s = sigmoid(y);
      return x * s * (y * (L(1.0lf) - s) + L(1.0lf));
    }
    case 105: {
      const NUMBER t = hyperbolic_tangent(gelu_inner(y));
      return x * (L(0.5lf) * (t + L(1.0lf)) +
                  L(0.5lf) * y * (L(1.0lf) - t * t) *
                      (L(0.79788456080286535588lf) * (L(1.0lf) + L(0.134145lf) * y * y)));
    }
#elif GROUP == CIRCLES
    case 6: return power(x, y);
    case 7: return arc_tangent2(x, y);
    case 104:
      return x * (normal_distribution(y) +
                  y * exponential(L(-0.5lf) * y * y) * L(0.39894228040143267794lf));
#endif
  }
  return zero;
}

// Of one: 32 + Unary in ops/unary.h.
NUMBER of_one(NUMBER x) {
  const NUMBER zero = NUMBER(0);
  const NUMBER low = number(first), high = number(second);
  switch (kFunction) {
#if GROUP == PLAIN
    case 32: return -x;
    case 33: return abs(x);
    case 34: return x > zero ? NUMBER(1) : x < zero ? NUMBER(-1) : x == zero ? zero : x;
    case 35: return x * x;
    case 36: return x < zero ? zero : x;
    case 37: return truth(x == zero);
    case 39: {
      const NUMBER raised = x < low ? low : x;
      return raised > high ? high : raised;
    }
#if CLASS < 2
    case 40: return floor(x);
    case 41: return ceil(x);
    case 42: return roundEven(x);
    case 43: return trunc(x);
    case 51: return x < zero ? not_a_number() : sqrt(x);
    case 52: return x < zero ? not_a_number() : L(1.0lf) / sqrt(x);
    case 53: return L(1.0lf) / x;
    case 71: return x > zero ? x : x * low;
    case 74: {
      const NUMBER raised = x < low ? low : x;
      return raised > high ? high : raised;
    }
    case 75:
    case 76: {
      const NUMBER y = clamp(x / L(6.0lf) + L(0.5lf), zero, L(1.0lf));
      return isnan(x) ? x : kFunction == 75 ? y : x * y;
    }
    case 77: return truth(isnan(x));
    case 78: return truth(isinf(x));
    case 79: return truth(!isnan(x) && !isinf(x));
#else
    case 38: return dtype_of(0) == kBool ? truth(x == 0) : ~x;
    case 40:
    case 41:
    case 42:
    case 43: return x;
    case 77:
    case 78: return zero;
    case 79: return NUMBER(1);
#endif
#elif GROUP == EXPONENTIALS
    case 44: return isnan(x) ? x : exponential(x);
    case 46: return isnan(x) ? x : expm1_of(x);
    case 47: return log_of(x);
    case 48: return log_of(x) * L(1.44269504088896340736lf);
    case 49: return log_of(x) * L(0.43429448190325182765lf);
    case 50: return isnan(x) ? x : log1p_of(x);
    case 60: return isnan(x) ? x : hyperbolic_sine(x);
    case 61: return isnan(x) ? x : hyperbolic_cosine(x);
    case 62: return isnan(x) ? x : hyperbolic_tangent(x);
    case 65: return isnan(x) ? x : sigmoid(x);
    case 66: return isnan(x) ? x : -log1p_exp(-x);
    case 67: return isnan(x) ? x : x * sigmoid(x);
    case 68: return isnan(x) ? x : x * hyperbolic_tangent(log1p_exp(x));
    case 70: return isnan(x) ? x : L(0.5lf) * x * (L(1.0lf) + hyperbolic_tangent(gelu_inner(x)));
    case 72: return x > zero ? x : low * expm1_of(x);
    case 73: return isnan(x) || x * low > high ? x : log1p_exp(x * low) / low;
#elif GROUP == CIRCLES
    case 45: return isnan(x) ? x : power(L(2.0lf), x);
    case 54: return isnan(x) ? x : sine(x, 0);
    case 55: return isnan(x) ? x : sine(x, 1);
    case 56: return isnan(x) ? x : sine(x, 0) / sine(x, 1);
    case 57:
    case 58: {
      if (isnan(x) || abs(x) > L(1.0lf)) return not_a_number();
      const NUMBER other = sqrt((L(1.0lf) - x) * (L(1.0lf) + x));
      return kFunction == 57 ? arc_tangent2(x, other) : arc_tangent2(other, x);
    }
    case 59: return isnan(x) ? x : arc_tangent(x);
    case 63: return isnan(x) ? x : error_function(x);
    case 64: return isnan(x) ? x : error_rest(x);
    case 69: return isnan(x) ? x : x * normal_distribution(x);
#endif
  }
  return x;  // 90: a copy in another dtype
}

void run(uint i, ivec4 at) {
  const NUMBER x = (kNumbers & 1) != 0 ? number(first) : load(bases[1], at.y, dtype_of(1));
  NUMBER result;
  if (kFunction >= 32 && kFunction < 96) {
    result = of_one(x);
  } else {
    result = (kNumbers & 2) == 0 ? load(bases[2], at.z, dtype_of(2)) : number(first);
#if GROUP == PLAIN
    if (kFunction == 96) {
      if (x == NUMBER(0))
        result = (kNumbers & 4) == 0 ? load(bases[3], at.w, dtype_of(3))
                                     : number((kNumbers & 2) == 0 ? first : second);
    } else
#endif
      result = of_two(x, result);
  }
  store(bases[0], at.x, dtype_of(0), result);
}
#else
// 91: elements as they are (kNumbers 0; strides may be negative from element `first` on), one for all (1), or those below (2) or above (4) a
// diagonal of a contiguous target, the others 0. The dtypes are numbers of bytes.
void run(uint i, ivec4 at) {
  const int to = at.x, from = at.y + (kNumbers == 0 ? int(first.x) : 0);
  bool fills = (kNumbers & 1) != 0;
  uvec4 value = uvec4(first, second);
  if (kNumbers > 1) {
    const int column = int(i % first.x), row = int(i / first.x % first.y);
    const int edge = row + int(second.x);
    fills = kNumbers == 2 ? column > edge : column < edge;
    value = uvec4(0);
  }
  const uvec2 source = bases[1], target = bases[0];
  switch (dtype_of(0)) {
    case 1: set_byte(target, to, fills ? value.x : byte_of(source, from)); break;
#if WIDE
    case 2:
      Halves(target).at[to] = fills ? uint16_t(value.x & 65535) : Halves(source).at[from];
      break;
#endif
    case 4: Words(target).at[to] = fills ? value.x : Words(source).at[from]; break;
    case 8: Pairs(target).at[to] = fills ? value.xy : Pairs(source).at[from]; break;
    case 16: Fours(target).at[to] = fills ? value : Fours(source).at[from]; break;
  }
}
#endif

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint rest = i;
    ivec4 at = ivec4(kDims == 0 ? int(i) : 0);
    for (uint d = 0; d < kDims; ++d) {
      const uint size = d < 3 ? sizes[d] : rest + 1;
      const int index = int(rest % size);
      rest /= size;
      at += index * ivec4(strides[0][d], strides[1][d], strides[2][d], strides[3][d]);
    }
    run(i, at);
  }
}
