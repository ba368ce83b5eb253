// Checks of every argument that comes through the engine's door. Each throws EngineFault
// invalid_argument with a message that begins with the field's path, for example
// "datums[3].branches[0].tokens[5]: ...".
#ifndef HOTBED_ENGINE_VALIDATE_H_
#define HOTBED_ENGINE_VALIDATE_H_

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace hotbed {

void ValidateOptions(const EngineOptions& options);
void ValidateSampleRequest(const ModelConfig& config, const SampleRequest& request);
void ValidateTrainingCall(const ModelConfig& config, const Loss& loss,
                          const std::vector<Datum>& datums);
void ValidateAdamParams(const AdamParams& params);
void ValidateTokens(const ModelConfig& config, const std::string& field,
                    const std::vector<int32_t>& tokens);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_VALIDATE_H_
