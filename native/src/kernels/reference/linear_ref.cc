#include <immintrin.h>

#include <cstring>

#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

namespace {
float panelElement(const PackedLinear& w, size_t out, size_t k) {
  if (w.narrowPanels) {
    const size_t column = out % kPanelWidth;
    const uint32_t word = w.narrowPanels[((out / kPanelWidth) * w.dIn + k) * 16 + column % 16];
    const uint32_t bits = column < 16 ? word << 16 : word & 0xFFFF0000u;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  return w.panels[(out / kPanelWidth) * kPanelWidth * w.dIn + k * kPanelWidth + out % kPanelWidth];
}

// Nearest bf16 number, ties to even, by the distances to the two neighbours.
float roundBf16(float x) {
  const uint32_t bits = bitsOf(x);
  if (x != x) return floatOf((bits | 0x400000u) & 0xFFFF0000u);
  const uint32_t rest = bits & 0xFFFFu;
  const uint32_t below = bits & 0xFFFF0000u;  // towards zero
  const bool up = rest > 0x8000u || (rest == 0x8000u && (below & 0x10000u));
  return floatOf(up ? below + 0x10000u : below);
}

// bf16-1's product (P1): see linear.h.
void pairLinear(const LinearArgs& args) {
  const PackedLinear& w = args.weight;
  const size_t pairs = (w.dIn + 1) / 2;
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // denormals are read and given as zeros
  for (size_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.ldx;
    for (size_t out = 0; out < w.dOut; ++out) {
      const uint32_t* words =
          w.pairPanels + out / kPanelWidth * pairs * kPanelWidth + out % kPanelWidth;
      volatile float sum = 0.0f;  // volatile: nothing moves across the two settings
      for (size_t i = 0; i < pairs; ++i) {
        const uint32_t word = words[i * kPanelWidth];
        const float odd = 2 * i + 1 < w.dIn ? x[2 * i + 1] : 0.0f;
        sum = fmaf1(roundBf16(odd), floatOf(word & 0xFFFF0000u), sum);
        sum = fmaf1(roundBf16(x[2 * i]), floatOf(word << 16), sum);
      }
      if (w.bias) sum = sum + w.bias[out];
      args.y[row * args.ldy + out] = sum;
    }
  }
  _mm_setcsr(saved);
}

}  // namespace

void packLinear(ThreadPool&, const PackLinearArgs& args) {
  const size_t panelCount = (args.dOut + kPanelWidth - 1) / kPanelWidth;
  for (size_t p = 0; p < panelCount; ++p) {
    for (size_t k = 0; k < args.dIn; ++k) {
      for (size_t c = 0; c < kPanelWidth; ++c) {
        const size_t out = p * kPanelWidth + c;
        args.panels[(p * args.dIn + k) * kPanelWidth + c] =
            out < args.dOut ? args.w[out * args.ldw + k] : 0.0f;
      }
    }
  }
}

void packLinearTransposed(ThreadPool&, const PackLinearArgs& args) {
  const size_t panelCount = (args.dIn + kPanelWidth - 1) / kPanelWidth;
  for (size_t p = 0; p < panelCount; ++p) {
    for (size_t k = 0; k < args.dOut; ++k) {
      for (size_t c = 0; c < kPanelWidth; ++c) {
        const size_t in = p * kPanelWidth + c;
        args.panels[(p * args.dOut + k) * kPanelWidth + c] =
            in < args.dIn ? args.w[k * args.ldw + in] : 0.0f;
      }
    }
  }
}

bool narrowPanels(ThreadPool&, const float* panels, size_t floats, uint32_t* out) {
  for (size_t i = 0; i < floats; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &panels[i], sizeof bits);
    if (bits & 0xFFFFu) return false;
    const size_t column = i % kPanelWidth;
    uint32_t& word = out[i / kPanelWidth * 16 + column % 16];
    word = column < 16 ? bits >> 16 : word | bits;
  }
  return true;
}

bool pairPanels(ThreadPool&, const float* panels, size_t dOut, size_t dIn, uint32_t* out) {
  const size_t pairs = (dIn + 1) / 2;
  const size_t columns = (dOut + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
  for (size_t i = 0; i < pairs * columns; ++i) out[i] = 0;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t k = 0; k < dIn; ++k) {
      uint32_t bits;
      std::memcpy(&bits,
                  &panels[(column / kPanelWidth * dIn + k) * kPanelWidth + column % kPanelWidth],
                  sizeof bits);
      if (bits & 0xFFFFu) return false;
      uint32_t& word =
          out[(column / kPanelWidth * pairs + k / 2) * kPanelWidth + column % kPanelWidth];
      word |= k % 2 == 0 ? bits >> 16 : bits;
    }
  }
  return true;
}

void linear(ThreadPool&, const LinearArgs& args) {
  const PackedLinear& w = args.weight;
  if (w.pairPanels) return pairLinear(args);
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t out = 0; out < w.dOut; ++out) {
      float sum = 0.0f;
      for (size_t k = 0; k < w.dIn; ++k) {
        sum = fmaf1(args.x[row * args.ldx + k], panelElement(w, out, k), sum);
      }
      if (w.bias) sum = sum + w.bias[out];
      args.y[row * args.ldy + out] = sum;
    }
  }
}

}  // namespace hotbed::kernels::reference
