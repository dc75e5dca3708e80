// Included after numbers.glsl, where it computes in f32 or f64.
#if CLASS == 0
// x - k pi / 2 for a large x: a product with those bits of 2 / pi that make neither whole turns nor
// less than the result's last place (Payne and Hanek 1983). Adds k, modulo 4, to `turns`.
NUMBER reduced(NUMBER x, inout int turns) {
  const uint kTwoByPi[8] = uint[](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                  0xdb629599u, 0x3c439041u, 0xfe5163abu);
  const uint bits = floatBitsToUint(x), mantissa = bits & 0x7fffffu | 0x800000u;
  const uint at = (bits >> 23 & 255u) - 120u, shift = at & 31u;
  uint words[3];
  for (uint i = 0; i < 3; ++i) {
    const uint word = (at >> 5) + i;
    words[i] = kTwoByPi[word] << shift | (kTwoByPi[word + 1] >> 1) >> (31u - shift);
  }
  uint high, low, ignored, carry;
  umulExtended(mantissa, words[2], high, ignored);
  uint middle, top = mantissa * words[0];
  umulExtended(mantissa, words[1], middle, low);
  top += middle;
  low = uaddCarry(low, high, carry);
  top += carry;
  const int fraction = int(top << 2 | low >> 30);  // of a quarter, from -1/2 on
  const int quarters = int(top >> 30) + (fraction < 0 ? 1 : 0);
  turns += x < 0.0 ? 4 - quarters : quarters;
  const float rest = (float(fraction) + float(low << 2) * 2.3283064365386963e-10) *
                     (1.57079632679489661923 * 2.3283064365386963e-10);
  return x < 0.0 ? -rest : rest;
}
#endif

// The sine of x + quarters * pi / 2, by quarters of the circle.
NUMBER sine(NUMBER x, int quarters) {
  if (isinf(x)) return not_a_number();
  const NUMBER k = roundEven(x * L(0.63661977236758134308lf));
#if CLASS == 0
  NUMBER r = ((x - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.549789948768648e-8;
#else
  const NUMBER near = (x - k * L(1.57079632673412561417lf)) - k * L(6.07710050630396597660e-11lf);
  NUMBER r = near - k * L(2.02226624879595063154e-21lf);
#endif
  int turns = int(k - L(4.0lf) * floor(k / L(4.0lf))) + quarters;
#if CLASS == 0
  if (abs(x) > 32768.0) {
    turns = quarters;
    r = reduced(x, turns);
  }
#endif
  if (k == L(0.0lf)) r = x;  // -0 stays
  const NUMBER s = r * r;
  NUMBER sum = L(1.0lf);
  if ((turns & 1) == 0) {
    for (int i = 16; i > 1; i -= 2) sum = L(1.0lf) - sum * s / NUMBER(i * (i + 1));
    sum *= r;
  } else {
    for (int i = 16; i > 1; i -= 2) sum = L(1.0lf) - sum * s / NUMBER(i * (i - 1));
  }
  return (turns & 2) == 0 ? sum : -sum;
}
