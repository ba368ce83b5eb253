#include "bindings/machine_bench_binding.h"

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "bindings/convert.h"
#include "bindings/engine_session.h"
#include "engine/machine_bench.h"

namespace hotbed {

// Shared with running jobs, so that a collected object does not take the buffers away from them.
struct MachineBenchBinding::State {
  MachineBenchOptions options;
  std::mutex mutex;
  std::unique_ptr<MachineBench> bench;  // made by the first job
};

namespace {

// Runs `work` off the JavaScript thread and settles a promise with what `convert` makes of it.
template <typename T>
class Job : public Napi::AsyncWorker {
 public:
  using Work = std::function<T()>;
  using Convert = Napi::Value (*)(Napi::Env, const T&);

  Job(Napi::Env env, Work work, Convert convert)
      : Napi::AsyncWorker(env),
        deferred_(Napi::Promise::Deferred::New(env)),
        work_(std::move(work)),
        convert_(convert) {}

  Napi::Value Start() {
    const Napi::Value promise = deferred_.Promise();
    Queue();
    return promise;
  }

 protected:
  void Execute() override {
    try {
      result_ = std::make_unique<T>(work_());
    } catch (...) {
      fault_ = CurrentFault();
    }
  }
  void OnOK() override {
    if (result_) {
      deferred_.Resolve(convert_(Env(), *result_));
    } else {
      deferred_.Reject(ToJsError(Env(), fault_));
    }
  }

 private:
  Napi::Promise::Deferred deferred_;
  Work work_;
  Convert convert_;
  std::unique_ptr<T> result_;
  Fault fault_{FaultCode::kIo, ""};
};

Argument At(const Napi::CallbackInfo& info, size_t index, const char* name) {
  return {info[index], name};
}

size_t ReadCount(const Argument& argument) {
  const int value = ReadInteger(argument);
  if (value < 1) {
    throw EngineFault(FaultCode::kInvalidArgument, argument.path + ": expected at least 1");
  }
  return static_cast<size_t>(value);
}

MachineBenchOptions ReadOptions(const Argument& argument) {
  MachineBenchOptions options;
  const Argument kernels = argument.Member("kernels"), threads = argument.Member("threads");
  if (!kernels.absent()) options.kernels = ReadText(kernels);
  if (!threads.absent()) options.threads = static_cast<int>(ReadCount(threads));
  options.read_mib = static_cast<int>(ReadCount(argument.Member("readMiB")));
  return options;
}

BenchPanels ReadPanels(const Argument& argument) {
  const std::string word = ReadText(argument);
  if (word == "wide") return BenchPanels::kWide;
  if (word == "narrow") return BenchPanels::kNarrow;
  if (word == "pairs") return BenchPanels::kPairs;
  throw EngineFault(FaultCode::kInvalidArgument,
                    argument.path + ": expected wide, narrow or pairs, got '" + word + "'");
}

LinearBenchCase ReadCase(const Argument& argument) {
  LinearBenchCase layer;
  layer.d_in = ReadCount(argument.Member("dIn"));
  layer.d_out = ReadCount(argument.Member("dOut"));
  for (int32_t rows : ReadTokens(argument.Member("rows"))) {
    if (rows < 1) throw EngineFault(FaultCode::kInvalidArgument, "rows: expected at least 1");
    layer.rows.push_back(static_cast<size_t>(rows));
  }
  layer.panels = ReadPanels(argument.Member("panels"));
  layer.rounds = ReadCount(argument.Member("rounds"));
  return layer;
}

Napi::Value MachineToJs(Napi::Env env, const MachineSample& sample) {
  auto object = Napi::Object::New(env);
  object.Set("fmaGflops", sample.fma_gflops);
  object.Set("bf16Gflops", sample.bf16_gflops
                               ? Napi::Value(Napi::Number::New(env, *sample.bf16_gflops))
                               : env.Null());
  object.Set("readGBs", sample.read_gbs);
  return object;
}

Napi::Value LinearToJs(Napi::Env env, const std::vector<LinearSample>& samples) {
  const auto list = Napi::Array::New(env, samples.size());
  for (uint32_t i = 0; i < samples.size(); ++i) {
    auto object = Napi::Object::New(env);
    object.Set("rows", static_cast<double>(samples[i].rows));
    object.Set("gflops", samples[i].gflops);
    object.Set("weightGBs", samples[i].weight_gbs);
    object.Set("machine", MachineToJs(env, samples[i].machine));
    list.Set(i, object);
  }
  return list;
}

}  // namespace

Napi::Function MachineBenchBinding::Define(Napi::Env env) {
  return DefineClass(env, "MachineBench",
                     {InstanceMethod("machine", &MachineBenchBinding::Machine),
                      InstanceMethod("linear", &MachineBenchBinding::Linear)});
}

MachineBenchBinding::MachineBenchBinding(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<MachineBenchBinding>(info), state_(std::make_shared<State>()) {
  try {
    state_->options = ReadOptions(At(info, 0, "options"));
  } catch (...) {
    throw Napi::Error(info.Env(), ToJsError(info.Env(), CurrentFault()));
  }
}

Napi::Value MachineBenchBinding::Machine(const Napi::CallbackInfo& info) {
  const auto state = state_;
  auto* job = new Job<MachineSample>(
      info.Env(),
      [state] {
        const std::lock_guard<std::mutex> lock(state->mutex);
        if (!state->bench) state->bench = std::make_unique<MachineBench>(state->options);
        return state->bench->Machine();
      },
      MachineToJs);
  return job->Start();  // frees itself when it has settled
}

Napi::Value MachineBenchBinding::Linear(const Napi::CallbackInfo& info) {
  const auto state = state_;
  LinearBenchCase layer;
  try {
    layer = ReadCase(At(info, 0, "case"));
  } catch (...) {
    throw Napi::Error(info.Env(), ToJsError(info.Env(), CurrentFault()));
  }
  auto* job = new Job<std::vector<LinearSample>>(
      info.Env(),
      [state, layer] {
        const std::lock_guard<std::mutex> lock(state->mutex);
        if (!state->bench) state->bench = std::make_unique<MachineBench>(state->options);
        return state->bench->Linear(layer);
      },
      LinearToJs);
  return job->Start();
}

}  // namespace hotbed
