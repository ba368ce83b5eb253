// Between JavaScript values and the engine's plain structs: names and order are those of
// libs/engine, absent = null. Typed arrays are copied as blocks. Reading throws EngineFault
// invalid_argument that names the field by its path.
#pragma once

#include <napi.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/adapter_files.h"
#include "engine/engine.h"

namespace hotbed {

// A value from JavaScript and the path that names it in messages ("request.params.topK").
struct Argument {
  Napi::Value value;
  std::string path;
  // Names given to Member so far.
  mutable std::vector<std::string> known = {};

  bool absent() const { return value.IsNull() || value.IsUndefined(); }
  Argument Member(const char* name) const;
  // Refuses the object if it has a member that nobody has read: a misspelt or newer field must not
  // be dropped in silence. Readers of objects end with it.
  void RefuseOtherMembers() const;
};

std::string ReadText(const Argument& argument);
// The name of a tenant; absent = empty: nobody in particular.
std::string ReadTenant(const Argument& argument);
double ReadNumber(const Argument& argument);
int ReadInteger(const Argument& argument);
bool ReadBoolean(const Argument& argument);
// An unsigned 64-bit integer as a decimal string.
uint64_t ReadDecimal(const Argument& argument);
// A handle or request id: a positive integer.
uint64_t ReadHandle(const Argument& argument);
std::vector<int32_t> ReadTokens(const Argument& argument);

struct OpenOptions {
  std::string model_folder;
  EngineOptions engine;
};
OpenOptions ReadOpenOptions(const Argument& argument);
AdapterSpec ReadAdapterSpec(const Argument& argument);
SampleRequest ReadSampleRequest(const Argument& argument);
Loss ReadLoss(const Argument& argument);
std::vector<Datum> ReadDatums(const Argument& argument);
AdamParams ReadAdamParams(const Argument& argument);

Napi::Value ToJs(Napi::Env env, Unit value);
Napi::Value ToJs(Napi::Env env, uint64_t handle);
Napi::Value ToJs(Napi::Env env, const std::string& text);
Napi::Value ToJs(Napi::Env env, const std::vector<float>& values);
Napi::Value ToJs(Napi::Env env, const EngineInfo& info);
Napi::Value ToJs(Napi::Env env, const EngineStats& stats);
Napi::Value ToJs(Napi::Env env, const AdapterMemory& memory);
Napi::Value ToJs(Napi::Env env, const std::vector<TenantStats>& tenants);
Napi::Value ToJs(Napi::Env env, const AdapterSpec& spec);
Napi::Value ToJs(Napi::Env env, const SampleResult& result);
Napi::Value ToJs(Napi::Env env, const std::vector<SampledToken>& tokens);
Napi::Value ToJs(Napi::Env env, const ForwardBackwardResult& result);
Napi::Value ToJs(Napi::Env env, const OptimStepResult& result);
Napi::Value ToJs(Napi::Env env, const AdapterFile& file);

// An Error with `code` and the fault's message.
Napi::Value ToJsError(Napi::Env env, const Fault& fault);

}  // namespace hotbed
