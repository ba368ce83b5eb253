#include "engine/cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/cpu_buffers.h"

namespace hotbed {

namespace {
// Pages are taken from the system in slabs of about this size (at least a page), as they are first
// used.
constexpr size_t kSlabBytes = size_t{4} << 20;
}  // namespace

CpuExecutor::CpuExecutor(const CpuExecutorOptions& options, const ModelConfig& config,
                         ModelWeights weights)
    : options_(options),
      kernels_(kernels::kernels(options.path)),
      pool_(options.threads),
      model_(config, std::move(weights), options.numerics, kernels_, pool_),
      context_{kernels_, pool_, model_, options.mutation, {}, {}, {}},
      layer_page_floats_(kernels::kvPageFloats(config.num_kv_heads, config.head_dim)),
      pages_per_slab_(std::max<size_t>(1, kSlabBytes / page_bytes())),
      sampling_(std::make_unique<SamplingBuffers>()),
      pass_(std::make_unique<TrainingPass>()) {}

CpuExecutor::~CpuExecutor() = default;

size_t CpuExecutor::page_bytes() const {
  return layer_page_floats_ * model_.config().num_layers * sizeof(float);
}

size_t CpuExecutor::base_bytes() const { return model_.bytes(); }

size_t CpuExecutor::kv_allocated_bytes() const {
  size_t bytes = 0;
  for (const AlignedBuffer<float>& slab : slabs_) bytes += slab.bytes();
  return bytes;
}

size_t CpuExecutor::scratch_bytes() const {
  return step_arena_.bytes() + head_arena_.bytes() + pass_arena_.bytes();
}

void CpuExecutor::InitializeAdapter(AdapterState* state) {
  for (const AdapterTensor& tensor : state->layout->tensors()) {
    if (tensor.is_b) continue;
    kernels::LoraInitArgs args;
    args.a = state->weights->at(tensor);
    args.rank = tensor.rows;
    args.dIn = tensor.cols;
    args.layer = tensor.layer;
    args.moduleId = static_cast<unsigned>(tensor.module);
    args.seed = state->spec->seed;
    kernels_.loraInit(pool_, args);
  }
}

void CpuExecutor::FillCopy(const AdapterWeights& weights, CpuAdapterCopy* copy) {
  std::vector<kernels::TransposeArgs> matrices;
  matrices.reserve(weights.layout->tensors().size());
  for (const AdapterTensor& tensor : weights.layout->tensors()) {
    matrices.push_back({weights.at(tensor), static_cast<size_t>(tensor.rows),
                        static_cast<size_t>(tensor.cols), copy->transposed.data() + tensor.offset});
  }
  kernels_.transposeMany(pool_, matrices.data(), matrices.size());
}

const CpuAdapterCopy* CpuExecutor::CopyFor(const AdapterWeights& weights) {
  if (!weights.executor_copy) {
    auto copy = std::make_shared<CpuAdapterCopy>();
    copy->transposed = AlignedBuffer<float>(weights.values.size(), Contents::kAnything);
    FillCopy(weights, copy.get());
    weights.executor_copy = std::move(copy);
  }
  return static_cast<const CpuAdapterCopy*>(weights.executor_copy.get());
}

void CpuExecutor::AddLora(const AdapterWeights* weights, size_t row_begin, size_t row_end,
                          float* gradient, RowContext* rows) {
  if (!weights || row_begin == row_end) return;
  LoraRows lora;
  lora.weights = weights;
  lora.copy = CopyFor(*weights);
  lora.gradient = gradient;
  lora.row_begin = row_begin;
  lora.row_end = row_end;
  lora.scale = LoraScale(*weights->spec);
  rows->lora.push_back(lora);
  rows->max_rank = std::max<size_t>(rows->max_rank, weights->spec->rank);
}

void CpuExecutor::AddHeadLora(const AdapterWeights& weights, size_t row_begin, size_t row_end,
                              float* gradient, std::vector<kernels::HeadLora>* lora) {
  const int layer = model_.config().num_layers;
  const AdapterTensor* a = weights.layout->a(layer, Module::kLmHead);
  if (!a || row_begin == row_end) return;
  const AdapterTensor* b = weights.layout->b(layer, Module::kLmHead);
  const float* transposed = CopyFor(weights)->transposed.data();
  kernels::HeadLora segment;
  segment.rowBegin = row_begin;
  segment.rowEnd = row_end;
  segment.rank = a->rows;
  segment.scale = LoraScale(*weights.spec);
  segment.at = transposed + a->offset;
  segment.bt = transposed + b->offset;
  segment.a = weights.at(*a);
  segment.b = weights.at(*b);
  segment.gradA = gradient ? gradient + a->offset : nullptr;
  segment.gradB = gradient ? gradient + b->offset : nullptr;
  lora->push_back(segment);
}

float* CpuExecutor::Page(int32_t id) {
  const size_t slab = static_cast<size_t>(id) / pages_per_slab_;
  const size_t page_floats = layer_page_floats_ * model_.config().num_layers;
  if (slab >= slabs_.size()) slabs_.resize(slab + 1);
  if (slabs_[slab].size() == 0) slabs_[slab] = AlignedBuffer<float>(pages_per_slab_ * page_floats);
  return slabs_[slab].data() + id % pages_per_slab_ * page_floats;
}

void CpuExecutor::CopyPage(const PageCopy& copy) {
  const ModelConfig& config = model_.config();
  const size_t rows = static_cast<size_t>(config.num_kv_heads) * config.head_dim;
  const size_t head_floats = static_cast<size_t>(kPagePositions) * config.head_dim;
  const size_t used = copy.positions;
  const float* from = Page(copy.from);
  float* to = Page(copy.to);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (size_t r = 0; r < rows; ++r) {  // keys: lanes are positions
      std::memcpy(to + r * kPagePositions, from + r * kPagePositions, used * sizeof(float));
    }
    const size_t values = rows * kPagePositions;
    for (int head = 0; head < config.num_kv_heads; ++head) {
      const size_t at = values + head * head_floats;
      std::memcpy(to + at, from + at, used * config.head_dim * sizeof(float));
    }
    from += layer_page_floats_;
    to += layer_page_floats_;
  }
}

void CpuExecutor::GatherFinal(const float* x, const size_t* rows, size_t count, float* gathered,
                              float* normed) {
  const size_t d = model_.config().hidden_size;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(gathered + i * d, x + rows[i] * d, d * sizeof(float));
  }
  kernels::RmsNormArgs norm;
  norm.x = gathered;
  norm.ldx = d;
  norm.rows = count;
  norm.n = d;
  norm.w = model_.final_norm().data();
  norm.eps = model_.config().rms_norm_eps;
  norm.y = normed;
  norm.ldy = d;
  kernels_.rmsNorm(pool_, norm);
}

}  // namespace hotbed
