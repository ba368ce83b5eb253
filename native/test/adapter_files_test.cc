// Digests, snapshots, PEFT export and import: exact bytes out, exact state back, every wrong file
// refused by name.
#include "engine/adapter_files.h"

#include <cstring>
#include <random>

#include "engine/peft.h"
#include "engine/state_digest.h"
#include "fault_check.h"
#include "harness.h"
#include "model_folder.h"

using namespace hotbed;
using namespace hotbed::test;

namespace {

ModelConfig TinyConfig() {
  ModelConfig config;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_layers = 11;  // so that byte order differs from numeric order
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.vocab_size = 40;
  return config;
}

AdapterSpec Spec() { return {3, 7.5, false, {Module::kQ, Module::kV, Module::kDown}, 42}; }

std::unique_ptr<AdapterState> RandomState(uint64_t seed, const AdapterSpec& spec = Spec()) {
  auto state = ZeroAdapterState(TinyConfig(), spec);
  std::mt19937_64 random(seed);
  const auto fill = [&](AlignedBuffer<float>& buffer) {
    for (const AdapterTensor& tensor : state->layout->tensors()) {
      for (size_t i = 0; i < tensor.size(); ++i) {
        buffer[tensor.offset + i] =
            static_cast<float>(static_cast<int64_t>(random() % 4001) - 2000) / 1024;
      }
    }
  };
  fill(state->weights->values);
  fill(state->m);
  fill(state->v);
  fill(state->gradient);
  state->step = 5;
  return state;
}

bool SameBuffer(const AlignedBuffer<float>& a, const AlignedBuffer<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

const StateIdentity kIdentity{std::string(64, 'a'), "f32-1", 9};

std::string DigestOf(const AdapterState& state, const StateIdentity& identity = kIdentity) {
  TensorDigests fresh;
  return StateDigest(state, identity, fresh);
}

std::string Name(const std::string& module, const std::string& side) {
  return "base_model.model.model.layers." + module + ".lora_" + side + ".weight";
}

// A PEFT adapter on TinyConfig's base with q of every layer, rank 2.
struct PeftFiles {
  std::string config =
      "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"],\"bias\":"
      "\"none\",\"lora_dropout\":0.0,\"modules_to_save\":null,\"init_lora_weights\":true}";
  std::vector<TestTensor> tensors;

  PeftFiles() {
    std::mt19937_64 random(3);
    for (int layer = 0; layer < TinyConfig().num_layers; ++layer) {
      const std::string module = std::to_string(layer) + ".self_attn.q_proj";
      tensors.push_back({Name(module, "A"), "F32", {2, 16}, RandomBytes(random, "F32", 32)});
      tensors.push_back({Name(module, "B"), "F32", {24, 2}, RandomBytes(random, "F32", 48)});
    }
  }
  std::unique_ptr<AdapterState> Import(uint64_t seed = 1) const {
    const TemporaryFolder folder;
    WriteFile(folder.path() + "/adapter_config.json", config);
    WriteFile(folder.path() + "/adapter_model.safetensors", SafetensorsBytes(tensors));
    return ImportPeft(folder.path(), TinyConfig(), seed);
  }
  void Replace(const std::string& from, const std::string& to) {
    config.replace(config.find(from), from.size(), to);
  }
  void Rename(const std::string& from, const std::string& to) {
    for (TestTensor& tensor : tensors) {
      const size_t at = tensor.name.find(from);
      if (at != std::string::npos) tensor.name.replace(at, from.size(), to);
    }
  }
};

}  // namespace

TEST(export_is_the_file_that_weights_digest_names) {
  const auto state = RandomState(1);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/adapter_model.safetensors";
  const AdapterFile file = ExportWeights(path, *state->weights);
  CHECK_EQ(file.digest, WeightsDigest(*state->weights));
  const std::string bytes = ReadFile(path);
  CHECK_EQ(file.bytes, bytes.size());
  CHECK_EQ(ToHex(Sha256Of(bytes.data(), bytes.size())), file.digest);
  const SafetensorsFile read(path);
  CHECK_EQ(read.entries().size(), size_t{66});
  CHECK(read.Find(Name("10.mlp.down_proj", "A")) != nullptr);
  // Layer 10 stands before layer 2: byte order.
  CHECK(read.Find(Name("10.mlp.down_proj", "A"))->begin <
        read.Find(Name("2.mlp.down_proj", "A"))->begin);
}

TEST(exported_weights_come_back_exactly) {
  const auto state = RandomState(2);
  const TemporaryFolder folder;
  ExportWeights(folder.path() + "/adapter_model.safetensors", *state->weights);
  WriteFile(folder.path() + "/adapter_config.json", PeftConfigText(*state->spec));
  const auto imported = ImportPeft(folder.path(), TinyConfig(), 42);
  CHECK(SameBuffer(imported->weights->values, state->weights->values));
  CHECK_EQ(SpecJson(*imported->spec, "b", "n"), SpecJson(*state->spec, "b", "n"));
  CHECK_EQ(imported->step, uint64_t{0});
}

TEST(state_digest_covers_every_part_and_nothing_else) {
  const auto state = RandomState(3);
  const std::string digest = DigestOf(*state);
  CHECK_EQ(DigestOf(*CopyOf(*state)), digest);
  CHECK(DigestOf(*state, {kIdentity.base_digest, "f32-1", 10}) != digest);
  CHECK(DigestOf(*state, {kIdentity.base_digest, "f32-2", 9}) != digest);
  CHECK(DigestOf(*state, {std::string(64, 'b'), "f32-1", 9}) != digest);
  for (AlignedBuffer<float>* buffer :
       {&state->weights->values, &state->m, &state->v, &state->gradient}) {
    for (const AdapterTensor& tensor : state->layout->tensors()) {
      float& last = (*buffer)[tensor.offset + tensor.size() - 1];
      const float before = last;
      last = -before - 1;
      CHECK(DigestOf(*state) != digest);
      last = before;
    }
  }
  state->step = 6;
  CHECK(DigestOf(*state) != digest);
}

TEST(state_digest_rehashes_what_counted_on) {
  const auto state = RandomState(4);
  TensorDigests cache;
  StateDigest(*state, kIdentity, cache);
  state->gradient[0] += 1;
  ++state->gradient_changes;
  CHECK_EQ(StateDigest(*state, kIdentity, cache), DigestOf(*state));
  state->weights->values[0] += 1;
  state->m[0] += 1;
  state->v[1] += 1;
  ++state->weights_changes;
  ++state->moments_changes;
  CHECK_EQ(StateDigest(*state, kIdentity, cache), DigestOf(*state));
}

TEST(snapshot_restores_every_bit) {
  const auto state = RandomState(5);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/snapshot.safetensors";
  TensorDigests cache;
  const AdapterFile file = WriteSnapshot(path, *state, kIdentity, cache);
  const Snapshot read = ReadSnapshot(path, TinyConfig(), kIdentity.base_digest, "f32-1");
  CHECK_EQ(read.op_index, uint64_t{9});
  CHECK_EQ(DigestOf(*read.state), DigestOf(*state));
  CHECK(SameBuffer(read.state->weights->values, state->weights->values));
  CHECK(SameBuffer(read.state->m, state->m));
  CHECK(SameBuffer(read.state->v, state->v));
  CHECK(SameBuffer(read.state->gradient, state->gradient));
  // Equal states give equal files, and nothing else is left in the folder.
  CHECK_EQ(WriteSnapshot(path, *read.state, kIdentity, cache).digest, file.digest);
  CHECK_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(snapshot_refuses_another_base_and_damage) {
  const auto state = RandomState(6);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/snapshot.safetensors";
  TensorDigests cache;
  WriteSnapshot(path, *state, kIdentity, cache);
  const auto read = [&] {
    return ReadSnapshot(path, TinyConfig(), kIdentity.base_digest, "f32-1");
  };
  CHECK_FAULT(ReadSnapshot(path, TinyConfig(), std::string(64, 'b'), "f32-1"),
              FaultCode::kBaseMismatch, "baseDigest");
  CHECK_FAULT(ReadSnapshot(path, TinyConfig(), kIdentity.base_digest, "f32-2"),
              FaultCode::kBaseMismatch, "numericsId");
  const std::string bytes = ReadFile(path);
  std::mt19937_64 random(8);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = bytes;
    if (round % 4 == 0) {
      damaged.resize(random() % bytes.size());
    } else {
      damaged[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    WriteFile(path, damaged);
    try {
      read();
      CHECK_MESSAGE(false, "a damaged snapshot was accepted, round " << round);
    } catch (const EngineFault& fault) {
      CHECK_MESSAGE(std::string(fault.what()).find(path) != std::string::npos, fault.what());
    }
  }
  const auto weights_only = RandomState(7);
  ExportWeights(path, *weights_only->weights);
  CHECK_FAULT(read(), FaultCode::kInvalidFile, "not a snapshot");
}

TEST(head_adapter_goes_through_every_file) {
  AdapterSpec spec = Spec();
  spec.targets.push_back(Module::kLmHead);
  spec.rslora = true;
  const auto state = RandomState(9, spec);
  const auto& tensors = state->layout->tensors();
  CHECK_EQ(PeftTensorName(tensors[tensors.size() - 2]), "base_model.model.lm_head.lora_A.weight");
  CHECK_EQ(PeftTensorName(tensors.back()), "base_model.model.lm_head.lora_B.weight");
  const TemporaryFolder folder;
  TensorDigests cache;
  const std::string snapshot = folder.path() + "/snapshot.safetensors";
  WriteSnapshot(snapshot, *state, kIdentity, cache);
  const Snapshot read = ReadSnapshot(snapshot, TinyConfig(), kIdentity.base_digest, "f32-1");
  CHECK_EQ(DigestOf(*read.state), DigestOf(*state));
  CHECK(SameBuffer(read.state->gradient, state->gradient) && SameBuffer(read.state->m, state->m));

  ExportWeights(folder.path() + "/adapter_model.safetensors", *state->weights);
  WriteFile(folder.path() + "/adapter_config.json", PeftConfigText(spec));
  const auto imported = ImportPeft(folder.path(), TinyConfig(), spec.seed);
  CHECK(imported->spec->targets == spec.targets && imported->spec->rslora);
  CHECK(SameBuffer(imported->weights->values, state->weights->values));

  // What its own state digest does not cover it would not notice.
  auto other = CopyOf(*state);
  other->gradient[tensors.back().offset + tensors.back().size() - 1] += 1;
  CHECK(DigestOf(*other) != DigestOf(*state));
}

TEST(writing_fails_cleanly) {
  const auto state = RandomState(8);
  CHECK_FAULT(ExportWeights("/nowhere/file", *state->weights), FaultCode::kIo, "/nowhere/file");
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/taken");
  CHECK_FAULT(ExportWeights(folder.path() + "/taken", *state->weights), FaultCode::kIo, "taken");
  CHECK_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(peft_import_honours_alpha_and_rslora) {
  PeftFiles files;
  const auto plain = files.Import(77);
  CHECK_EQ(LoraScale(*plain->spec), 4.0f);
  CHECK_EQ(plain->spec->seed, uint64_t{77});
  files.Replace("\"r\":2", "\"r\":2,\"use_rslora\":true");
  const auto rslora = files.Import();
  CHECK(rslora->spec->rslora);
  CHECK_EQ(LoraScale(*rslora->spec), static_cast<float>(8.0 / 1.4142135623730951));
}

TEST(peft_import_reads_every_key_layout_alike) {
  const auto expected = PeftFiles().Import();
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"base_model.model.model.", "model."}, {".weight", ".default.weight"}}) {
    PeftFiles files;
    files.Rename(from, to);
    CHECK(SameBuffer(files.Import()->weights->values, expected->weights->values));
  }
  PeftFiles narrow;
  for (TestTensor& tensor : narrow.tensors) {
    std::string bf16;
    for (size_t i = 2; i < tensor.bytes.size(); i += 4) bf16 += tensor.bytes.substr(i, 2);
    tensor.dtype = "BF16";
    tensor.bytes = bf16;
  }
  CHECK_EQ(narrow.Import()->weights->values.size(), expected->weights->values.size());
}

TEST(peft_import_refuses_keys_by_name) {
  const auto refuse = [](const PeftFiles& files, const char* words) {
    CHECK_FAULT(files.Import(), FaultCode::kInvalidFile, words);
  };
  PeftFiles files;
  files.Rename("base_model.model.", "transformer.");
  refuse(files,
         "key \"transformer.model.layers.0.self_attn.q_proj.lora_A.weight\" matches no module");
  files = PeftFiles();
  files.Rename("layers.10.", "layers.11.");
  refuse(files, "layers.11.self_attn.q_proj.lora_A.weight\" matches no module");
  files = PeftFiles();
  files.Rename("layers.3.", "layers.03.");
  refuse(files, "layers.03.");
  files = PeftFiles();
  files.tensors.push_back({"base_model.model.lm_head.weight", "F32", {1}, std::string(4, '\0')});
  refuse(files, "key \"base_model.model.lm_head.weight\" matches no module");
  files.tensors.back().name = "base_model.model.lm_head.base_layer.weight";
  refuse(files, "save_embedding_layers=False");
  files = PeftFiles();
  files.tensors.push_back(files.tensors[0]);
  files.tensors.back().name.erase(0, std::strlen("base_model.model."));
  refuse(files, "stand for the same tensor");
  files = PeftFiles();
  files.tensors.pop_back();
  refuse(files, "layers.10.self_attn.q_proj.lora_B.weight\" is missing");
  files = PeftFiles();
  files.tensors[0].shape = {0};
  files.tensors[0].bytes.clear();
  refuse(files, "shape [0], but this base and \"r\" ask for [2,16]");
  files = PeftFiles();
  files.tensors[1].bytes.replace(4, 4, std::string("\0\0\x80\x7f", 4));
  refuse(files, "lora_B.weight\": element 1 is not a finite");
  files = PeftFiles();
  files.tensors.clear();
  refuse(files, "holds no tensors");
}

TEST(peft_import_refuses_what_it_would_have_to_drop) {
  const auto refuse = [](const std::string& from, const std::string& to, const char* words) {
    PeftFiles files;
    files.Replace(from, to);
    CHECK_FAULT(files.Import(), FaultCode::kInvalidFile, words);
  };
  refuse("\"modules_to_save\":null", "\"modules_to_save\":[\"lm_head\"]", "\"modules_to_save\"");
  refuse("\"bias\":\"none\"", "\"bias\":\"lora_only\"", "\"bias\"");
  refuse("\"lora_dropout\":0.0", "\"lora_dropout\":0.05", "\"lora_dropout\"");
  refuse("\"r\":2", "\"r\":2,\"use_dora\":true", "\"use_dora\"");
  refuse("\"r\":2", "\"r\":2,\"rank_pattern\":{\"q_proj\":4}", "\"rank_pattern\"");
  refuse("\"r\":2", "\"r\":2,\"alpha_pattern\":{\"q_proj\":4}", "\"alpha_pattern\"");
  refuse("\"r\":2", "\"r\":2,\"layers_to_transform\":[0]", "\"layers_to_transform\"");
  refuse("\"r\":2", "\"r\":2,\"some_new_feature\":1", "\"some_new_feature\"");
  refuse("\"init_lora_weights\":true", "\"init_lora_weights\":\"pissa\"", "pissa");
  refuse("\"r\":2", "\"r\":0", "\"r\" must be");
  refuse("\"r\":2", "\"r\":100000", "\"r\" must be");
  refuse("\"r\":2,", "", "\"r\" is missing");
  refuse("\"lora_alpha\":8,", "", "\"lora_alpha\" is missing");
  refuse("\"lora_alpha\":8", "\"lora_alpha\":1e300",
         "adapter_config.json: the adapter is refused: alpha");
  refuse("\"LORA\"", "\"LOHA\"", "\"peft_type\"");
  refuse("[\"q_proj\"]", "[\"q_proj\",\"v_proj\"]", "names \"v_proj\"");
  CHECK_FAULT(ImportPeft("/nowhere", TinyConfig(), 1), FaultCode::kInvalidFile, "does not exist");
}
