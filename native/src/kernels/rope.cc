#include "kernels/path.h"
//
#include "kernels/path_table.h"

namespace hotbed::kernels::HOTBED_PATH {

namespace {

HOTBED_INLINE double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }

// log of a normal x > 0: atanh series in s = (m-1)/(m+1), |s| <= 0.172, to s^23.
double log64(double x) {
  double exponent = 0;
  for (; x >= 1.4142135623730951; x = x * 0.5) exponent += 1;
  for (; x < 0.70710678118654757; x = x * 2.0) exponent -= 1;
  const double s = (x - 1.0) / (x + 1.0);
  const double square = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 1; k -= 2) sum = fma64(sum, square, 1.0 / k);
  return fma64(exponent, kLn2High64, fma64(exponent, kLn2Low64, (2.0 * s) * sum));
}

// exp for |x| < 700: Taylor to r^14 on |r| <= 0.347.
double exp64(double x) {
  const double n = (x * kLog2e64 + kRoundMagic64) - kRoundMagic64;
  const double r = fma64(-n, kLn2Low64, fma64(-n, kLn2High64, x));
  double sum = 1.0;
  for (int k = 14; k >= 1; --k) sum = fma64(sum * r, 1.0 / k, 1.0);
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return sum * power;
}

// sin and cos, 0 <= angle < 2^20: three-part reduction by pi/2, Taylor to r^17 and r^16.
void sinCos64(double angle, double& sine, double& cosine) {
  const double n = (angle * kTwoOverPi + kRoundMagic64) - kRoundMagic64;
  double r = fma64(-n, kHalfPi1, angle);
  r = fma64(-n, kHalfPi2, r);
  r = fma64(-n, kHalfPi3, r);
  const double square = r * r;
  double s = 1.0;
  for (int k = 16; k >= 2; k -= 2) s = fma64(s * square, -1.0 / (k * (k + 1)), 1.0);
  s = s * r;
  double c = 1.0;
  for (int k = 15; k >= 1; k -= 2) c = fma64(c * square, -1.0 / (k * (k + 1)), 1.0);
  const int quadrant = static_cast<int>(static_cast<int64_t>(n) & 3);
  const bool swapped = quadrant & 1;
  sine = swapped ? c : s;
  cosine = swapped ? s : c;
  if (quadrant == 2 || quadrant == 3) sine = -sine;
  if (quadrant == 1 || quadrant == 2) cosine = -cosine;
}

}  // namespace

void ropeFrequencies(const RopeFrequencyArgs& args) {
  FloatEnvironment environment;
  const double logTheta = log64(args.theta);
  for (size_t i = 0; i < args.headDim / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(args.headDim);
    double frequency = exp64(-(exponent * logTheta));
    if (args.llama3) {
      const double wavelength = 6.28318530717958647693 / frequency;
      if (wavelength > args.originalMaxPositions / args.lowFreqFactor) {
        frequency = frequency / args.factor;
      } else if (wavelength >= args.originalMaxPositions / args.highFreqFactor) {
        const double smooth = (args.originalMaxPositions / wavelength - args.lowFreqFactor) /
                              (args.highFreqFactor - args.lowFreqFactor);
        frequency = (1.0 - smooth) * (frequency / args.factor) + smooth * frequency;
      }
    }
    args.invFreq[i] = frequency;
  }
}

void ropeTable(ThreadPool& pool, const RopeTableArgs& args) {
  constexpr size_t kPositions = 64;
  pool.forEach(divideUp(args.positionEnd - args.positionBegin, kPositions),
               [&](size_t task, size_t) {
                 const size_t begin = args.positionBegin + task * kPositions;
                 const size_t end = minSize(begin + kPositions, args.positionEnd);
                 for (size_t position = begin; position < end; ++position) {
                   for (size_t i = 0; i < args.half; ++i) {
                     double sine, cosine;
                     sinCos64(static_cast<double>(position) * args.invFreq[i], sine, cosine);
                     const size_t at = (position - args.positionBegin) * args.half + i;
                     args.cos[at] = static_cast<float>(cosine);
                     args.sin[at] = static_cast<float>(sine);
                   }
                 }
               });
}

void rope(ThreadPool& pool, const RopeArgs& args) {
  const size_t half = args.headDim / 2;
  const size_t perTask = maxSize(1, 16384 / maxSize(1, args.heads * args.headDim));
  pool.forEach(divideUp(args.rows, perTask), [&](size_t task, size_t) {
    const size_t end = minSize((task + 1) * perTask, args.rows);
    for (size_t row = task * perTask; row < end; ++row) {
      const float* cosines = args.cos + static_cast<size_t>(args.positions[row]) * half;
      const float* sines = args.sin + static_cast<size_t>(args.positions[row]) * half;
      for (size_t head = 0; head < args.heads; ++head) {
        float* x = args.x + row * args.ldx + head * args.headDim;
        for (size_t i = 0; i < half; i += 16) {
          const size_t lanes = minSize(16, half - i);
          const V16 c = load(cosines + i, lanes);
          V16 s = load(sines + i, lanes);
          if (args.backward) s = neg(s);
          const V16 xi = load(x + i, lanes);
          const V16 xj = load(x + half + i, lanes);
          store(x + i, fma(xi, c, neg(mul(xj, s))), lanes);
          store(x + half + i, fma(xj, c, mul(xi, s)), lanes);
        }
      }
    }
  });
}

}  // namespace hotbed::kernels::HOTBED_PATH
