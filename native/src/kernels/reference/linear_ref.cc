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

void linear(ThreadPool&, const LinearArgs& args) {
  const PackedLinear& w = args.weight;
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
