#include "engine/flops.h"

namespace hotbed {

namespace {

// Keys that rows at positions [begin, begin + count) attend to, all together.
double Keys(size_t begin, size_t count) {
  const double n = static_cast<double>(count);
  return n * static_cast<double>(begin) + n * (n + 1) / 2;
}

}  // namespace

FlopsModel::FlopsModel(const ModelConfig& config) {
  const double d = config.hidden_size;
  layers_ = config.num_layers;
  layer_ =
      2 * d * (2.0 * config.q_size() + 2.0 * config.kv_size() + 3.0 * config.intermediate_size);
  head_ = 2 * d * config.vocab_size;
  attention_ = 4 * layers_ * config.q_size();
}

double FlopsModel::Forward(size_t begin, size_t count, size_t parameters, size_t heads) const {
  return static_cast<double>(count) * (row() + 2.0 * static_cast<double>(parameters)) +
         attention_ * Keys(begin, count) + head_ * static_cast<double>(heads);
}

double FlopsModel::Backward(size_t begin, size_t count, size_t parameters, size_t heads) const {
  return static_cast<double>(count) * (row() + 4.0 * static_cast<double>(parameters)) +
         2.5 * attention_ * Keys(begin, count) + head_ * static_cast<double>(heads);
}

}  // namespace hotbed
