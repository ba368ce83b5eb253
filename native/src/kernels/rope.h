// Rotary embedding (N12): pairs (i, i + hd/2); angle = double(position) * invFreq[i];
// y_i = fma(x_i, c, -(x_j*s)), y_j = fma(x_j, c, x_i*s); backward the same with -s.
//
// Tables cos, sin [positions, hd/2] are filled by ropeTable, rounded once from own double
// functions. invFreq[i] = theta^(-2i/hd) in double, then llama3's wavelength rule where given
// (Hugging Face modeling_rope_utils, _compute_llama3_parameters).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotbed::kernels {

struct RopeFrequencyArgs {
  double theta = 10000;
  size_t headDim = 0;  // even
  bool llama3 = false;
  double factor = 1;
  double lowFreqFactor = 1;
  double highFreqFactor = 4;
  double originalMaxPositions = 8192;
  double* invFreq = nullptr;  // [headDim / 2] out
};

struct RopeTableArgs {
  const double* invFreq = nullptr;
  size_t half = 0;  // headDim / 2
  size_t positionBegin = 0;
  size_t positionEnd = 0;
  float* cos = nullptr;  // [positionEnd - positionBegin, half] out
  float* sin = nullptr;
};

struct RopeArgs {
  float* x = nullptr;  // [rows, heads * headDim], in place
  size_t ldx = 0;
  size_t rows = 0;
  size_t heads = 0;
  size_t headDim = 0;
  const int32_t* positions = nullptr;  // [rows], each < positions of the table
  const float* cos = nullptr;          // table from position 0
  const float* sin = nullptr;
  bool backward = false;
};

}  // namespace hotbed::kernels
