// Constants that every path and the reference share (N4, N9, N11). Plain numbers, no code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

// exp(x) = 2^n * P(r), n = round(x / ln 2), r = x - n ln 2 in [-0.347, 0.347].
constexpr float kExpMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr uint32_t kExpMagicBits = 0x4B400000u;
constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLn2High = 0.693359375f;  // 10 bits, so n * kLn2High is exact
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kExpLowest = -87.33f;  // below: +0; the result here is still a normal number
constexpr float kExpHighest =
    88.72283172607421875f;  // above: Inf; the last float that does not overflow
// Horner from the highest power; the last two coefficients are 1 (Cephes expf, S. L. Moshier).
constexpr float kExpC7 = 1.9875691500e-4f;
constexpr float kExpC6 = 1.3981999507e-3f;
constexpr float kExpC5 = 8.3334519073e-3f;
constexpr float kExpC4 = 4.1665795894e-2f;
constexpr float kExpC3 = 1.6666665459e-1f;
constexpr float kExpC2 = 5.0000001201e-1f;

// log(x) = e ln 2 + log1p(f), m = 1 + f in [sqrt(1/2), sqrt(2)), f exact
// (Cephes logf: f - f^2/2 + f^3 Q(f)).
constexpr uint32_t kLogSplitBits = 0x3F3504F3u;  // sqrt(1/2)
constexpr uint32_t kMantissaMask = 0x007FFFFFu;
constexpr float kSmallestNormal = 1.17549435e-38f;
constexpr float kLogDenormalScale = 8388608.0f;  // 2^23
constexpr float kLogC8 = 7.0376836292e-2f;
constexpr float kLogC7 = -1.1514610310e-1f;
constexpr float kLogC6 = 1.1676998740e-1f;
constexpr float kLogC5 = -1.2420140846e-1f;
constexpr float kLogC4 = 1.4249322787e-1f;
constexpr float kLogC3 = -1.6668057665e-1f;
constexpr float kLogC2 = 2.0000714765e-1f;
constexpr float kLogC1 = -2.4999993993e-1f;
constexpr float kLogC0 = 3.3333331174e-1f;

// pi/2 in three parts of 33 bits and less (fdlibm), so that n * part is exact for n < 2^20.
constexpr double kTwoOverPi = 0.63661977236758134308;
constexpr double kHalfPi1 = 1.57079632673412561417e+00;
constexpr double kHalfPi2 = 6.07710050630396597660e-11;
constexpr double kHalfPi3 = 2.02226624871116645580e-21;
constexpr double kRoundMagic64 = 6755399441055744.0;  // 1.5 * 2^52
// ln 2 in two parts (fdlibm).
constexpr double kLn2High64 = 6.93147180369123816490e-01;
constexpr double kLn2Low64 = 1.90821492927058770002e-10;
constexpr double kLog2e64 = 1.44269504088896338700;

// Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; Random123).
constexpr uint32_t kPhiloxM0 = 0xD2511F53u;
constexpr uint32_t kPhiloxM1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxW0 = 0x9E3779B9u;
constexpr uint32_t kPhiloxW1 = 0xBB67AE85u;
constexpr uint32_t kDomainSample = 0;
constexpr uint32_t kDomainInit = 1;

constexpr float kTwoToMinus24 = 5.9604644775390625e-8f;

}  // namespace hotbed::kernels
