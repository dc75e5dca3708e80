// Included after numbers.glsl, where it computes in f32 or f64.
// The sine of x + quarters * pi / 2, by quarters of the circle.
NUMBER sine(NUMBER x, int quarters) {
  if (isinf(x)) return not_a_number();
  const NUMBER k = roundEven(x * L(0.63661977236758134308lf));
#if CLASS == 0
  const NUMBER r = ((x - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.549789948768648e-8;
#else
  const NUMBER near = (x - k * L(1.57079632673412561417lf)) - k * L(6.07710050630396597660e-11lf);
  const NUMBER r = near - k * L(2.02226624879595063154e-21lf);
#endif
  const int turns = int(k - L(4.0lf) * floor(k / L(4.0lf))) + quarters;
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
