// What rows cost, in floating-point operations: the one place that knows. Shares are reckoned in
// it, tenants are charged in it, benchmarks compare with it.
//
// Letters (others in native/README.md): P linear weights of the layers, r S parameters of the
// adapter (A and B), ctx keys that a row attends to, qd = nq hd. Per row, forward: 2P + 2 r S + 4 L
// qd ctx, and 2Vd where the head runs; backward with a frozen base: 2P + 4 r S + 10 L qd ctx, and
// 2Vd. What an engine recomputes to save memory is its own affair and charged to nobody.
#ifndef HOTBED_ENGINE_FLOPS_H_
#define HOTBED_ENGINE_FLOPS_H_

#include <cstddef>

#include "engine/model_config.h"

namespace hotbed {

class FlopsModel {
 public:
  explicit FlopsModel(const ModelConfig& config);

  // Linear layers of one row: through all layers, and through one.
  double row() const { return layer_ * layers_; }
  double layer() const { return layer_; }
  // The head for one row.
  double head() const { return head_; }

  // Rows at positions [begin, begin + count) of one sequence with an adapter of `parameters`
  // numbers (0 = the base), `heads` of which go through the head.
  double Forward(size_t begin, size_t count, size_t parameters, size_t heads) const;
  double Backward(size_t begin, size_t count, size_t parameters, size_t heads) const;

 private:
  double layer_, layers_, head_;
  double attention_;  // of one row and one key in all layers, forward
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_FLOPS_H_
