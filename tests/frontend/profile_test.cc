// tests/frontend/profile_test.cc -- profiles of whole programs: the examples against formulas by
// hand and against PyTorch's FLOP counter (tests/numerics/flops.py), free dims, layers by name.
#include "ir/profile.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "frontend/layer_names.h"
#include "tests/frontend/frontend_testing.h"

namespace cad::frontend {
namespace {

using ir::Bindings;
using ir::Profile;
using ir::ProfileOptions;
using ir::Size;

std::string file_text(const std::string& name) {
  std::ifstream in(std::string(COLAUTO_SOURCE_DIR) + "/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Result<ir::TrainSpec> example(const std::string& name, std::vector<Setting> settings = {}) {
  CheckOptions options;
  options.settings = std::move(settings);
  const auto p = checked(file_text("examples/" + name), {}, options);
  EXPECT_FALSE(p->diagnostics.has_errors()) << p->text();
  return lower_train(*p->module, TrainUsage::kCost);
}

Profile profile_of(const std::string& name, ProfileOptions::Activations activations,
                   std::vector<Setting> settings = {}) {
  auto spec = example(name, std::move(settings));
  EXPECT_TRUE(spec.ok());
  ProfileOptions options;
  options.activations = activations;
  return ir::profile(*spec, options);
}

constexpr auto kKept = ProfileOptions::Activations::kKept;
constexpr auto kAll = ProfileOptions::Activations::kAll;

Size symbol(const char* name) {
  return Size::symbol(name);
}
std::string text(const Profile& p, const ir::Amount& amount) {
  return amount.size(p.graph).str();
}

TEST(ProgramProfile, Gpt2IsItsFormulas) {
  const Profile p = profile_of("gpt2-124m.cad", kAll);
  const Size B = symbol("B"), T = symbol("T"), D = symbol("D"), L = symbol("L"), V = symbol("V"),
             H = symbol("H");
  // Projections 4 D^2 and MLP 8 D^2, 2 FLOPs a weight and position; scores and values T D each.
  const Size forward = L * (24 * B * T * D * D + 4 * B * T * T * D) + 2 * B * T * D * V;
  EXPECT_EQ(p.total.forward.matmul.size(p.graph), forward);
  EXPECT_EQ(p.total.backward.matmul.size(p.graph), 2 * forward);
  EXPECT_EQ(p.total.params.size(p.graph), V * D + T * D + L * (12 * D * D + 13 * D) + 2 * D);
  EXPECT_EQ(p.total.params.size(p.graph).evaluate(p.bindings).value, 124'439'808);
  // f32 and no dropout: probabilities once. A layer: 16 values of 4 bytes a channel, mean and scale
  // of two norms. Outside: logits, the last norm's result, and the last residual's mean and scale.
  Size layer;
  for (const ir::SavedValue& saved : p.memory.saved) {
    if (p.graph.type(saved.value).dims[0] == p.graph.find_dim("h"))
      layer = layer + saved.bytes.size(p.graph);
  }
  EXPECT_EQ(layer, L * (64 * B * T * D + 4 * B * H * T * T + 16 * B * T));
  EXPECT_EQ(p.total.grad_bytes.size(p.graph), 4 * p.total.params.size(p.graph));
  EXPECT_EQ(p.total.optimizer_bytes.size(p.graph), 8 * p.total.params.size(p.graph));
}

TEST(ProgramProfile, LlamaIsItsFormulas) {
  const Profile p = profile_of("llama.cad", kAll);
  const Size B = symbol("B"), T = symbol("T"), D = symbol("D"), L = symbol("L"), V = symbol("V"),
             F = symbol("F"), R = symbol("R");
  const Size projections = D * D + 2 * D * D / R + D * D, mlp = 3 * D * F;
  const Size forward =
      L * (2 * B * T * (projections + mlp) + 4 * B * T * T * D) + 2 * B * T * D * V;
  EXPECT_EQ(p.total.forward.matmul.size(p.graph), forward);
  EXPECT_EQ(p.total.backward.matmul.size(p.graph), 2 * forward);
  EXPECT_EQ(p.total.params.size(p.graph), V * D + L * (projections + mlp + 2 * D) + D);
}

// f32. A block keeps 4 + 2 / R values a channel: its input, q, attention's result, the first
// residual, and k and v of D / R channels each; gate and up of F channels; a scale of each of two
// norms; and a number for each of H = G R heads (of attention, which is one op here).
TEST(ProgramProfile, LlamaSavesItsFormula) {
  const Profile p = profile_of("llama.cad", kKept);
  const Size B = symbol("B"), T = symbol("T"), D = symbol("D"), L = symbol("L"), F = symbol("F"),
             G = symbol("G"), R = symbol("R");
  Size layer;
  for (const ir::SavedValue& saved : p.memory.saved) {
    if (p.graph.type(saved.value).dims[0] == p.graph.find_dim("layers"))
      layer = layer + saved.bytes.size(p.graph);
  }
  EXPECT_EQ(layer, L * B * T * (16 * D + 8 * D / R + 8 * F + 8 + 4 * G * R));
}

// f32. Patches are nine values a place and channel: of the image, and of what both convolutions of
// the residual block read. Besides them the first convolution's result, 28 x 28 of O, and nine
// values a place of 7 x 7 and channel of O2.
TEST(ProgramProfile, ConvnetSavesItsFormula) {
  const Profile p = profile_of("convnet.cad", kKept);
  int64_t patches = 0, planes = 0, rest = 0;
  for (const ir::SavedValue& saved : p.memory.saved) {
    const int64_t bytes = saved.bytes.size(p.graph).evaluate(p.bindings).value;
    const ir::Value& value = p.graph.value(saved.value);
    const bool window = value.def.valid() && p.graph.node(value.def).op == ir::Op::kWindow;
    (window ? patches : bytes >= 64 * 7 * 7 * 32 ? planes : rest) += bytes;
  }
  EXPECT_EQ(patches, 4 * 9 * 64 * (28 * 28 + 2 * 7 * 7 * 32));
  EXPECT_EQ(planes, 4 * 64 * (28 * 28 * 16 + 9 * 7 * 7 * 32));
  EXPECT_LT(rest, 64 * 1024);
}

TEST(ProgramProfile, ConvnetIsItsFormulas) {
  const Profile p = profile_of("convnet.cad", kKept);
  const Bindings& b = p.bindings;
  const auto at = [&](const ir::Amount& amount) { return amount.size(p.graph).evaluate(b).value; };
  const int64_t first = 2 * 64 * 28 * 28 * 9 * 1 * 16, second = 2 * 64 * 7 * 7 * 9 * 16 * 32,
                third = 2 * 64 * 7 * 7 * 9 * 32 * 32, last = 2 * 64 * 32 * 10;
  EXPECT_EQ(at(p.total.forward.matmul), first + second + 2 * third + last);
  // The image needs no gradient.
  EXPECT_EQ(at(p.total.backward.matmul), first + 2 * (second + 2 * third + last));
  EXPECT_EQ(at(p.total.params),
            9 * (16 + 16 * 32 + 2 * 32 * 32) + 2 * (16 + 3 * 32) + 32 * 10 + 10);
}

// PyTorch counts contractions, with attention's probabilities at hand.
TEST(ProgramProfile, PytorchCountsTheSame) {
  const auto counted = nlohmann::json::parse(file_text("tests/numerics/flops.json"));
  for (const auto& [name, item] : counted["cases"].items()) {
    std::vector<Setting> settings;
    for (const auto& [dim, size] : item["dims"].items())
      settings.push_back({dim, std::to_string(size.get<int64_t>())});
    const Profile p = profile_of(name + ".cad", kAll, settings);
    const auto at = [&](const ir::Amount& amount) {
      return amount.size(p.graph).evaluate(p.bindings).value;
    };
    EXPECT_EQ(at(p.total.forward.matmul), item["forward"].get<int64_t>()) << name;
    EXPECT_EQ(at(p.total.backward.matmul), item["backward"].get<int64_t>()) << name;
    EXPECT_EQ(at(p.total.params), item["params"].get<int64_t>()) << name;
  }
}

// A hidden size of 1,024: attention 4 D^2 + 4 D, MLP 8 D^2 + 5 D, two norms 4 D.
TEST(ProgramProfile, OneLayerCanBeDerivedAgain) {
  const auto p = checked(file_text("tests/golden/cost_free.cad"));
  ASSERT_FALSE(p->diagnostics.has_errors()) << p->text();
  auto graph = lower_model(*p->module, true, ir::DType::kF32);
  ASSERT_TRUE(graph.ok());
  const Profile got = ir::profile(std::move(*graph), bindings(*p->module));
  EXPECT_EQ(got.total.params.size(got.graph).evaluate(got.bindings).value, 12'596'224);
  EXPECT_EQ(got.total.param_bytes.size(got.graph).evaluate(got.bindings).value, 50'384'896);
}

TEST(ProgramProfile, DimsMayStayFree) {
  CheckOptions options;
  const std::string program = file_text("examples/gpt.cad");
  std::string unbound = program;
  const size_t at = unbound.find("  B:         32\n");
  ASSERT_NE(at, std::string::npos);
  unbound.erase(at, std::string("  B:         32\n").size());
  const auto p = checked(unbound, {}, options);
  ASSERT_FALSE(p->diagnostics.has_errors()) << p->text();
  EXPECT_FALSE(lower_train(*p->module).ok());
  auto spec = lower_train(*p->module, TrainUsage::kCost);
  ASSERT_TRUE(spec.ok());
  const Profile got = ir::profile(*spec);
  EXPECT_TRUE(std::isnan(got.total.forward.flops().at(got.extents(got.bindings))));
  const Profile bound = profile_of("gpt.cad", kKept);
  EXPECT_EQ(text(got, got.total.forward.matmul), text(bound, bound.total.forward.matmul));
}

TEST(LayerNames, FollowCallsInstancesAndLoops) {
  const auto p = checked(
      "dim B, D = 4\n"
      "layer Inner(x: [B, D]) -> [B, D] {\n  param g : [D] = ones\n  return x * g\n}\n"
      "layer Outer(x: [B, D]) -> [B, D] {\n  use first = Inner\n  return Inner(first(x))\n}\n"
      "model Net(x: [B, D]) -> [B, D] {\n  repeat 3 as h { x = Outer(x) + RMSNorm[D](x) }\n"
      "  return Outer(x)\n}\n");
  ASSERT_FALSE(p->diagnostics.has_errors()) << p->text();
  const std::map<std::string, std::string> wanted = {{"h.{}.outer", "Outer"},
                                                     {"h.{}.outer.first", "Inner"},
                                                     {"h.{}.outer.inner", "Inner"},
                                                     {"h.{}.rms_norm", "RMSNorm"},
                                                     {"outer", "Outer"},
                                                     {"outer.first", "Inner"},
                                                     {"outer.inner", "Inner"}};
  EXPECT_EQ(layer_names(*p->module), wanted);
}

}  // namespace
}  // namespace cad::frontend
