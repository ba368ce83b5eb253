#include <cstring>

#include "kernels/constants.h"
#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {

double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }

double powerOfTwo64(int n) {
  const uint64_t bits = static_cast<uint64_t>(n + 1023) << 52;
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// log of a normal x > 0: atanh series in s = (m-1)/(m+1), |s| <= 0.172, up to s^23.
double log64(double x) {
  int e = 0;
  while (x >= 1.4142135623730951) {
    x = x * 0.5;
    ++e;
  }
  while (x < 0.70710678118654757) {
    x = x * 2.0;
    --e;
  }
  const double s = (x - 1.0) / (x + 1.0);
  const double square = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 1; k -= 2) sum = fma64(sum, square, 1.0 / k);
  const double n = e;
  return fma64(n, kLn2High64, fma64(n, kLn2Low64, (2.0 * s) * sum));
}

// exp for |x| < 700: Taylor to r^14 on |r| <= 0.347.
double exp64(double x) {
  const double n = (x * kLog2e64 + kRoundMagic64) - kRoundMagic64;
  const double r = fma64(-n, kLn2Low64, fma64(-n, kLn2High64, x));
  double sum = 1.0;
  for (int k = 14; k >= 1; --k) sum = fma64(sum * r, 1.0 / k, 1.0);
  return sum * powerOfTwo64(static_cast<int>(n));
}

struct SinCos {
  double sin;
  double cos;
};

// Taylor to r^17 and r^16 on |r| <= pi/4, angle >= 0 below 2^20.
SinCos sinCos64(double angle) {
  const double n = (angle * kTwoOverPi + kRoundMagic64) - kRoundMagic64;
  double r = fma64(-n, kHalfPi1, angle);
  r = fma64(-n, kHalfPi2, r);
  r = fma64(-n, kHalfPi3, r);
  const double square = r * r;
  double sine = 1.0;
  for (int k = 16; k >= 2; k -= 2) sine = fma64(sine * square, -1.0 / (k * (k + 1)), 1.0);
  sine = sine * r;
  double cosine = 1.0;
  for (int k = 15; k >= 1; k -= 2) cosine = fma64(cosine * square, -1.0 / (k * (k + 1)), 1.0);
  switch (static_cast<long long>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace

void ropeFrequencies(const RopeFrequencyArgs& args) {
  constexpr double twoPi = 6.28318530717958647693;
  for (size_t i = 0; i < args.headDim / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(args.headDim);
    double frequency = exp64(-(exponent * log64(args.theta)));
    if (args.llama3) {
      const double wavelength = twoPi / frequency;
      const double low = args.originalMaxPositions / args.lowFreqFactor;
      const double high = args.originalMaxPositions / args.highFreqFactor;
      if (wavelength > low) {
        frequency = frequency / args.factor;
      } else if (wavelength >= high) {
        const double smooth = (args.originalMaxPositions / wavelength - args.lowFreqFactor) /
                              (args.highFreqFactor - args.lowFreqFactor);
        frequency = (1.0 - smooth) * (frequency / args.factor) + smooth * frequency;
      }
    }
    args.invFreq[i] = frequency;
  }
}

void ropeTable(ThreadPool&, const RopeTableArgs& args) {
  for (size_t position = args.positionBegin; position < args.positionEnd; ++position) {
    for (size_t i = 0; i < args.half; ++i) {
      const SinCos value = sinCos64(static_cast<double>(position) * args.invFreq[i]);
      args.cos[(position - args.positionBegin) * args.half + i] = static_cast<float>(value.cos);
      args.sin[(position - args.positionBegin) * args.half + i] = static_cast<float>(value.sin);
    }
  }
}

void rope(ThreadPool&, const RopeArgs& args) {
  const size_t half = args.headDim / 2;
  for (size_t row = 0; row < args.rows; ++row) {
    const size_t position = static_cast<size_t>(args.positions[row]);
    for (size_t head = 0; head < args.heads; ++head) {
      float* x = args.x + row * args.ldx + head * args.headDim;
      for (size_t i = 0; i < half; ++i) {
        const float c = args.cos[position * half + i];
        const float s =
            args.backward ? -args.sin[position * half + i] : args.sin[position * half + i];
        const float xi = x[i];
        const float xj = x[i + half];
        x[i] = fmaf1(xi, c, -(xj * s));
        x[i + half] = fmaf1(xj, c, xi * s);
      }
    }
  }
}

}  // namespace hotbed::kernels::reference
