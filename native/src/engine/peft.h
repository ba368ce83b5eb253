// Hugging Face PEFT's layout of a LoRA adapter: adapter_model.safetensors and adapter_config.json.
//
// Written canonically: names `base_model.model.<module>.lora_A.weight` in byte order, F32, no
// metadata. Read in the layouts that PEFT and its users write: with or without `base_model.model.`,
// with or without `.default`, F32, F16 or BF16. Whatever would be dropped silently elsewhere is
// refused by name: unknown keys, modules_to_save, DoRA, biases, per-module ranks, dropout,
// initialisations that change the base.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/adapter_state.h"

namespace hotbed {

// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
std::string PeftTensorName(const AdapterTensor& tensor);

// The tensors ascending by their PEFT names: the order of the data in a canonical file.
std::vector<const AdapterTensor*> PeftOrder(const AdapterLayout& layout);

// The canonical safetensors header of A and B, length prefix and padding included.
std::string PeftHeader(const AdapterLayout& layout);

// The text of adapter_config.json.
std::string PeftConfigText(const AdapterSpec& spec);

// Reads a PEFT folder onto the base; moments and gradient +0, step 0. `seed` becomes the spec's.
// Throws EngineFault kInvalidFile naming file and key or field, kInvalidArgument where the base or
// the engine refuses the spec.
std::unique_ptr<AdapterState> ImportPeft(const std::string& folder, const ModelConfig& config,
                                         uint64_t seed);

}  // namespace hotbed
