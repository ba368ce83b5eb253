// A folder of native/test/fixtures (README.md there): the model loaded, its adapter, and comparison
// with what PyTorch computed.
//
// Tolerance: two correct float32 programs differ by the order of their sums. The fixture records
// how far PyTorch's own float32 run is from the float64 truth, per kind of tensor; ours may be 8
// times as far (long ascending chains instead of blocked sums), never less than 1e-6 of the
// greatest magnitude. A wrong formula misses by orders of magnitude.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "engine/json.h"
#include "engine/model_weights.h"
#include "engine/peft.h"
#include "engine/safetensors.h"
#include "engine_support.h"

namespace hotbed::test {

inline std::string FixtureFolder(const std::string& name) {
  const std::string file = __FILE__;
  return file.substr(0, file.find_last_of('/') + 1) + "fixtures/" + name;
}

inline const Json& At(const Json& object, const std::string& key) {
  const Json* found = object.Find(key);
  if (!found) fail(__FILE__, __LINE__, "expected.json lacks " + key);
  return *found;
}

inline std::vector<float> Floats(const Json& array) {
  std::vector<float> values;
  for (const Json& item : array.items) values.push_back(static_cast<float>(*item.AsDouble()));
  return values;
}

inline std::vector<int32_t> Ids(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& item : array.items) ids.push_back(static_cast<int32_t>(*item.AsUnsigned()));
  return ids;
}

class FixtureFiles {
 public:
  explicit FixtureFiles(const std::string& name)
      : folder_(FixtureFolder(name)),
        tensors_(folder_ + "/expected.safetensors"),
        engine_(SmallOptions(), LoadModel(folder_)) {
    std::ifstream file(folder_ + "/expected.json");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    expected_ = ParseJson(text, folder_ + "/expected.json");
  }

  TestEngine& engine() { return engine_; }
  const Json& expected() const { return expected_; }
  AdapterHandle Adapter() {
    return engine_.Adopt(ImportPeft(folder_ + "/adapter", engine_.raw().config(), 0));
  }
  std::vector<float> Tensor(const std::string& name) const {
    const SafetensorsEntry* entry = tensors_.Find(name);
    if (!entry) fail(__FILE__, __LINE__, "expected.safetensors lacks " + name);
    std::vector<float> values(entry->elements());
    tensors_.ReadF32(*entry, values.data());
    return values;
  }
  double Scalar(const std::string& name) const {
    return *At(At(expected_, "scalars"), name).AsDouble();
  }

  // The allowed distance for a kind of tensor.
  double Tolerance(const std::string& kind) const {
    const Json& entry = At(At(At(expected_, "float32"), "tensors"), kind);
    return std::max(8 * *At(entry, "maxAbsError").AsDouble(),
                    1e-6 * *At(entry, "maxAbsValue").AsDouble());
  }
  void Near(const std::string& what, const std::string& kind, const float* actual,
            const std::vector<float>& expected) const {
    const double allowed = Tolerance(kind);
    size_t worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::fabs(actual[i] - expected[i]) <= std::fabs(actual[worst] - expected[worst]))) {
        worst = i;
      }
    }
    const double distance = std::fabs(static_cast<double>(actual[worst]) - expected[worst]);
    CHECK_MESSAGE(distance <= allowed, what << "[" << worst << "]: expected " << expected[worst]
                                            << ", actual " << actual[worst] << ", distance "
                                            << distance << ", allowed " << allowed);
  }
  // Scalars are sums of values of one kind; allow the same relative slack as PyTorch's own float32
  // run, times 8.
  void NearScalar(const std::string& name, double actual) const {
    const double expected = Scalar(name);
    const double peer = *At(At(At(expected_, "float32"), "scalars"), name).AsDouble();
    const double allowed = std::max(8 * std::fabs(peer - expected), 2e-6 * std::fabs(expected));
    CHECK_MESSAGE(std::fabs(actual - expected) <= allowed,
                  name << ": expected " << expected << ", actual " << actual);
  }
  void NearTensors(const std::string& prefix, const std::string& kind, const AdapterState& state,
                   const float* flat) const {
    for (const AdapterTensor& tensor : state.layout->tensors()) {
      const std::string name = prefix + "." + PeftTensorName(tensor);
      Near(name, kind, flat + tensor.offset, Tensor(name));
    }
  }

 private:
  std::string folder_;
  SafetensorsFile tensors_;
  TestEngine engine_;
  Json expected_;
};

inline double GradientNorm(const AdapterState& state) {
  double sum = 0;
  for (size_t i = 0; i < state.gradient.size(); ++i) {
    sum += static_cast<double>(state.gradient[i]) * state.gradient[i];
  }
  return std::sqrt(sum);
}

}  // namespace hotbed::test
