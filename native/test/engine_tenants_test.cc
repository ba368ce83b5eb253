// Tenants in an engine: shares by weight, refusals, what is charged and to whom. Order and counts
// only, never time.
#include <future>

#include "engine/flops.h"
#include "engine_support.h"
#include "gate.h"

namespace hotbed::test {
namespace {

AdapterSpec Spec(uint64_t seed, int rank = 4) {
  AdapterSpec spec;
  spec.rank = rank;
  spec.alpha = 8;
  spec.targets = {Module::kQ, Module::kDown};
  spec.seed = seed;
  return spec;
}

AdapterHandle Create(TestEngine& engine, const AdapterSpec& spec, const std::string& tenant) {
  Pending<AdapterHandle> pending;
  engine.raw().CreateAdapter(spec, pending.done(), tenant);
  return pending.Get();
}

std::vector<TenantStats> Tenants(TestEngine& engine) {
  Pending<std::vector<TenantStats>> pending;
  engine.raw().Tenants(pending.done());
  return pending.Get();
}

TenantStats Tenant(TestEngine& engine, const std::string& name) {
  for (const TenantStats& tenant : Tenants(engine)) {
    if (tenant.tenant == name) return tenant;
  }
  throw Failure{"no tenant " + name};
}

SampleRequest Request(std::optional<PolicyHandle> policy, int sequences, int tokens) {
  SampleRequest request;
  request.policy = policy;
  request.prompt = {1, 2, 3};
  for (int i = 0; i < sequences; ++i) request.seeds.push_back(i);
  request.params.max_tokens = tokens;
  return request;
}

// What both had when the heavy one was done: its last callback asks on the engine thread.
struct Shares {
  double heavy = 0, light = 0;
};
template <typename Submit>
Shares SharesWhenHeavyEnds(TestEngine& engine, int calls, Submit submit) {
  engine.raw().SetTenantWeight("heavy", 3);
  Pending<std::vector<TenantStats>> measured;
  std::vector<std::promise<void>> ended(2 * calls);
  std::atomic<int> left{calls};
  {
    Gate gate(engine);
    for (int i = 0; i < calls; ++i) {
      submit("light", i, [&, i](auto) { ended[i].set_value(); });
      submit("heavy", i, [&, i](auto) {
        if (--left == 0) engine.raw().Tenants(measured.done());
        ended[calls + i].set_value();
      });
    }
    gate.Open();
  }
  Shares shares;
  for (const TenantStats& tenant : measured.Get()) {
    const double flops = tenant.sampling_flops + tenant.training_flops;
    if (tenant.tenant == "heavy") shares.heavy = flops;
    if (tenant.tenant == "light") shares.light = flops;
  }
  for (std::promise<void>& end : ended) end.get_future().wait();
  return shares;
}

TEST(tenants_sample_in_the_ratio_of_their_weights) {
  EngineOptions options = SmallOptions();
  options.max_step_rows = 8;
  TestEngine engine(LlamaBase(), options);
  const PolicyHandle light = engine.Pin(Create(engine, Spec(1), "light"));
  const PolicyHandle heavy = engine.Pin(Create(engine, Spec(2), "heavy"));
  const Shares shares =
      SharesWhenHeavyEnds(engine, 4, [&](const std::string& name, int, auto done) {
        engine.raw().Sample(Request(name == "light" ? light : heavy, 16, 40), done);
      });
  CHECK_MESSAGE(shares.heavy / shares.light > 2.7 && shares.heavy / shares.light < 3.3,
                shares.heavy << " " << shares.light);
}

// The same policy, the plain base, sampled by two tenants.
TEST(tenants_share_the_base_by_weight) {
  EngineOptions options = SmallOptions();
  options.max_step_rows = 8;
  TestEngine engine(LlamaBase(), options);
  const Shares shares =
      SharesWhenHeavyEnds(engine, 4, [&](const std::string& name, int, auto done) {
        SampleRequest request = Request(std::nullopt, 16, 40);
        request.tenant = name;
        engine.raw().Sample(request, done);
      });
  CHECK_MESSAGE(shares.heavy / shares.light > 2.7 && shares.heavy / shares.light < 3.3,
                shares.heavy << " " << shares.light);
  // Rows of both were one segment: no step was mixed.
  CHECK_EQ(engine.raw().stats().mixed_decode_steps, uint64_t{0});
}

TEST(tenants_train_in_the_ratio_of_their_weights) {
  EngineOptions options = SmallOptions();
  options.max_train_rows = 40;
  TestEngine engine(LlamaBase(), options);
  const AdapterHandle light = Create(engine, Spec(1), "light");
  const AdapterHandle heavy = Create(engine, Spec(2), "heavy");
  Inputs inputs(5);
  const Loss loss;
  const std::vector<Datum> datums(20, inputs.OneDatum(loss, 2, {6}));
  const Shares shares =
      SharesWhenHeavyEnds(engine, 4, [&](const std::string& name, int, auto done) {
        engine.raw().ForwardBackward(name == "light" ? light : heavy, loss, datums, done);
      });
  CHECK_MESSAGE(shares.heavy / shares.light > 2.5 && shares.heavy / shares.light < 3.5,
                shares.heavy << " " << shares.light);
}

// Weights, tenants and limits of shares show in no result.
TEST(tenants_show_in_no_result) {
  Inputs inputs(6);
  const Loss loss;
  std::vector<std::vector<Datum>> datums;
  std::vector<AdapterSpec> specs;
  for (int i = 0; i < 6; ++i) {
    specs.push_back(inputs.Spec());
    datums.push_back(inputs.Datums(loss, 4));
  }
  std::vector<SampleRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(inputs.Request(std::nullopt));
  const auto run = [&](bool tenants, double decode_floor, double max_wait) {
    EngineOptions options = SmallOptions();
    options.max_step_rows = tenants ? 5 : 32;
    options.max_train_rows = tenants ? 40 : 128;
    options.decode_floor = decode_floor;
    options.max_wait_flops = max_wait;
    TestEngine engine(LlamaBase(), options);
    const auto name = [&](int i) { return tenants ? "t" + std::to_string(i % 3) : std::string(); };
    if (tenants) engine.raw().SetTenantWeight("t1", 7);
    std::vector<AdapterHandle> adapters;
    std::vector<Pending<SampleResult>> samples;
    for (int i = 0; i < 6; ++i) adapters.push_back(Create(engine, specs[i], name(i)));
    std::vector<std::shared_ptr<const AdapterState>> states;
    std::vector<Pending<ForwardBackwardResult>> passes;
    for (int i = 0; i < 6; ++i) {
      passes.push_back(engine.Train(adapters[i], loss, datums[i]));
      SampleRequest request = requests[i];
      if (i % 2 == 0) request.policy = engine.Pin(adapters[i]);
      request.tenant = name(i + 1);
      samples.push_back(engine.Sample(request));
    }
    std::pair<std::vector<SampleResult>, std::vector<std::shared_ptr<const AdapterState>>> all;
    for (auto& pass : passes) pass.Get();
    for (auto& sample : samples) all.first.push_back(sample.Get());
    for (AdapterHandle adapter : adapters) all.second.push_back(engine.State(adapter));
    return all;
  };
  const auto expected = run(false, 0.25, 2e12);
  for (const auto& actual : {run(true, 0.25, 2e12), run(true, 0, 1e4), run(true, 0.75, 1e6)}) {
    for (size_t i = 0; i < 6; ++i) {
      SAME_SAMPLES(actual.first[i], expected.first[i]);
      SAME_STATE(actual.second[i], expected.second[i]);
    }
  }
}

TEST(tenants_above_a_limit_are_refused_at_once_and_nothing_else_changes) {
  EngineOptions options = SmallOptions();
  options.limits.per_tenant.sampling_calls = 2;
  options.limits.total.sampling_calls = 3;
  options.limits.per_tenant.training_rows = 50;
  TestEngine engine(LlamaBase(), options);
  const AdapterHandle adapter = Create(engine, Spec(1), "a");
  const auto before = engine.State(adapter);
  const PolicyHandle policy = engine.Pin(adapter);
  Inputs inputs(7);
  const Loss loss;
  const Datum datum = inputs.OneDatum(loss, 3, {20});
  {
    Gate gate(engine);
    Pending<SampleResult> first = engine.Sample(Request(policy, 1, 4));
    Pending<SampleResult> second = engine.Sample(Request(policy, 1, 4));
    // Refused before the engine thread has run: at once.
    const Result<SampleResult> third = engine.Sample(Request(policy, 1, 4)).Wait();
    CHECK(!third.ok());
    CHECK(third.fault().code == FaultCode::kBusy);
    CHECK(third.fault().message.find("limits.perTenant.samplingCalls: 2 sampling calls are "
                                     "pending for this tenant") == 0);
    SampleRequest other = Request(std::nullopt, 1, 4);
    other.tenant = "b";
    Pending<SampleResult> theirs = engine.Sample(other);
    other.tenant = "c";
    const Result<SampleResult> total = engine.Sample(other).Wait();
    CHECK(!total.ok() && total.fault().message.find("limits.total.samplingCalls: 3") == 0);
    // Training has a measure of its own.
    Pending<ForwardBackwardResult> pass = engine.Forward(adapter, loss, {datum, datum});
    const Result<ForwardBackwardResult> more = engine.Forward(adapter, loss, {datum}).Wait();
    CHECK(!more.ok() && more.fault().code == FaultCode::kBusy);
    CHECK(more.fault().message.find("limits.perTenant.trainingRows: 44 training rows") == 0);
    CHECK_EQ(engine.raw().stats().busy_refusals, uint64_t{3});
    CHECK_EQ(engine.raw().stats().pending_sampling_calls, uint64_t{3});
    gate.Open();
    first.Get();
    second.Get();
    theirs.Get();
    pass.Get();
  }
  CHECK_EQ(engine.raw().stats().pending_sampling_calls, uint64_t{0});
  CHECK_EQ(engine.raw().stats().pending_training_rows, uint64_t{0});
  engine.Sample(Request(policy, 1, 4)).Get();
  SAME_STATE(engine.State(adapter), before);
  CHECK_EQ(Tenant(engine, "a").busy_refusals, uint64_t{2});
  CHECK_EQ(Tenant(engine, "c").busy_refusals, uint64_t{1});
}

// A call refused for its arguments, cancelled or dropped is pending no more.
TEST(tenants_pending_work_ends_with_its_call) {
  TestEngine engine;
  const AdapterHandle adapter = Create(engine, Spec(1), "a");
  Inputs inputs(8);
  const Loss loss;
  const Datum datum = inputs.OneDatum(loss, 3, {20});
  {
    Gate gate(engine);
    RequestId id = 0;
    Pending<SampleResult> cancelled = engine.Sample(Request(std::nullopt, 4, 100), &id);
    engine.raw().Cancel(id);
    Pending<ForwardBackwardResult> dropped = engine.Train(adapter, loss, {datum});
    Pending<ForwardBackwardResult> unknown = engine.Train(adapter + 99, loss, {datum});
    Pending<Unit> drop;
    engine.raw().DropAdapter(adapter, drop.done());
    SampleRequest bad = Request(std::nullopt, 1, 1);
    bad.prompt = {-1};
    CHECK(!engine.Sample(bad).Wait().ok());
    gate.Open();
    CHECK(!cancelled.Wait().ok());
    CHECK(!dropped.Wait().ok());
    CHECK(!unknown.Wait().ok());
    drop.Get();
  }
  const EngineStats stats = engine.raw().stats();
  CHECK_EQ(stats.pending_sampling_calls + stats.pending_sampling_tokens, uint64_t{0});
  CHECK_EQ(stats.pending_training_rows + stats.pending_data_bytes, uint64_t{0});
  CHECK_EQ(stats.oldest_sampling_ms + stats.oldest_training_ms, 0.0);
}

// vllm#22782: one large rank slows everyone. Each pays for its own rows and its own rank.
TEST(tenants_pay_by_their_own_rank_vllm_22782) {
  TestEngine engine;
  const FlopsModel flops(ConfigOf(LlamaBase()));
  const AdapterSpec small = Spec(1, 4), large = Spec(2, 64);
  const AdapterHandle a = Create(engine, small, "small"), b = Create(engine, large, "large");
  Inputs inputs(9);
  const Loss loss;
  const Datum datum = inputs.OneDatum(loss, 3, {7, 5});
  const auto cost = [&](const AdapterSpec& spec) {
    const size_t n = AdapterLayout(ConfigOf(LlamaBase()), spec).parameter_count();
    double total = flops.Forward(0, 2, n, 0) + flops.Backward(0, 2, n, 0);
    for (size_t rows : {7, 5}) {
      total += flops.Forward(2, rows, n, rows) + flops.Backward(2, rows, n, rows);
    }
    return total;
  };
  Gate gate(engine);
  Pending<ForwardBackwardResult> one = engine.Train(a, loss, {datum});
  Pending<ForwardBackwardResult> other = engine.Train(b, loss, {datum});
  gate.Open();
  one.Get();
  other.Get();
  CHECK_EQ(engine.raw().stats().train_passes, uint64_t{1});
  CHECK_EQ(Tenant(engine, "small").training_flops, cost(small));
  CHECK_EQ(Tenant(engine, "large").training_flops, cost(large));
  // Counted slice by slice.
  const double both = cost(small) + cost(large);
  CHECK(std::abs(engine.raw().stats().training_flops - both) < 1e-9 * both);
}

// A step may come after every layer of a pass: with a slice of one layer none waits for more.
TEST(tenants_a_decode_step_waits_for_one_layer_of_one_pass_at_most) {
  for (const int budget_mib : {64, 0}) {  // activations kept, and recomputed
    EngineOptions options = SmallOptions();
    options.max_train_rows = 120;
    options.activation_budget_mib = budget_mib;
    TinyBase base = LlamaBase();
    base.layers = 6;
    TestEngine engine(base, options);
    const AdapterHandle adapter = engine.Create(Spec(1));
    Inputs inputs(10);
    const Loss loss;
    const Datum datum = inputs.OneDatum(loss, 1, {60, 60});
    Gate gate(engine);
    std::vector<Pending<ForwardBackwardResult>> passes;
    for (int i = 0; i < 4; ++i) passes.push_back(engine.Train(adapter, loss, {datum}));
    Pending<SampleResult> sample = engine.Sample(Request(std::nullopt, 1, 200));
    gate.Open();
    for (auto& pass : passes) pass.Get();
    sample.Get();
    const FlopsModel flops(ConfigOf(base));
    const size_t n = AdapterLayout(ConfigOf(base), Spec(1)).parameter_count();
    const double pass = 2 * (flops.Forward(0, 60, n, 60) + flops.Backward(0, 60, n, 60));
    const EngineStats stats = engine.raw().stats();
    CHECK(stats.max_decode_wait_flops > 0);
    // Six layers and the head, forward and backward: no slice is more than a fifth of the pass
    // (recomputed: a backward slice is two layers of eighteen, and the head).
    CHECK_MESSAGE(stats.max_decode_wait_flops <= pass / 5,
                  stats.max_decode_wait_flops << " of " << pass);
    CHECK_EQ(stats.train_passes, uint64_t{4});
  }
}

}  // namespace
}  // namespace hotbed::test
