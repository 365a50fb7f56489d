// tests/frontend/profile_test.cc -- profiles of whole programs: the examples against formulas by
// hand and against PyTorch's FLOP counter (tests/numerics/flops.py), free dims, layers by name.
#include "ir/profile.h"

#include <cmath>
#include <fstream>
#include <map>
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

// What is saved for the backward pass, by formulas of sizes that are symbols or numbers: the
// profile's in symbols, and its numbers for two sets of sizes, of which the first is the program's.
template <class Formula>
void expect_saved(const std::string& name, ProfileOptions::Activations activations,
                  const std::vector<std::string>& dims, const Formula& formula,
                  const std::vector<std::vector<int64_t>>& bindings) {
  std::map<std::string, Size> symbols;
  for (const std::string& dim : dims) symbols.emplace(dim, symbol(dim.c_str()));
  for (const std::vector<int64_t>& sizes : bindings) {
    std::vector<Setting> settings;
    std::map<std::string, int64_t> numbers;
    for (size_t i = 0; i < dims.size(); ++i) {
      settings.push_back({dims[i], std::to_string(sizes[i])});
      numbers[dims[i]] = sizes[i];
    }
    const Profile p = profile_of(name, activations, settings);
    const Size got = p.total.activation_bytes.size(p.graph);
    EXPECT_EQ(got, formula(symbols)) << got.str();
    EXPECT_EQ(got.evaluate(p.bindings).value, formula(numbers)) << sizes[0];
  }
}

const std::vector<std::string> kGpt2Dims = {"B", "T", "V", "D", "L", "H"};
const std::vector<std::vector<int64_t>> kGpt2Sizes = {{4, 1024, 50257, 768, 12, 12},
                                                      {3, 96, 211, 160, 5, 5}};

// f32 and no dropout, nothing computed twice. A layer: 16 values of 4 bytes a channel (x, the first
// norm's result, q, k, v, attention's result, the residual, the second norm's result, and 4 each
// before and after gelu), the probabilities, mean and variance of two norms. Outside: logits, and
// of the last norm its result, x, mean and variance.
TEST(ProgramProfile, Gpt2SavesItsFormulaWithNothingRecomputed) {
  const auto formula = [](auto& s) {
    const auto B = s.at("B"), T = s.at("T"), V = s.at("V"), D = s.at("D"), L = s.at("L"),
               H = s.at("H");
    return L * (64 * B * T * D + 4 * B * H * T * T + 16 * B * T) + 4 * B * T * V + 8 * B * T * D +
           8 * B * T;
  };
  expect_saved("gpt2-124m.cad", kAll, kGpt2Dims, formula, kGpt2Sizes);
}

// With attention as one op and norms made again of what they centred. A layer: 10 values a channel
// (centred twice, q, k, v, attention's result, 4 before gelu), a number of 4 bytes a head, a scale
// of each norm. Outside: logits, and of the last norm what it centred, that scaled, its result and
// its scale.
TEST(ProgramProfile, Gpt2SavesItsFormula) {
  const auto formula = [](auto& s) {
    const auto B = s.at("B"), T = s.at("T"), V = s.at("V"), D = s.at("D"), L = s.at("L"),
               H = s.at("H");
    return L * (40 * B * T * D + 4 * B * T * H + 8 * B * T) + 4 * B * T * V + 12 * B * T * D +
           4 * B * T;
  };
  expect_saved("gpt2-124m.cad", kKept, kGpt2Dims, formula, kGpt2Sizes);
}

const std::vector<std::string> kLlamaDims = {"B", "T", "V", "D", "L", "G", "R", "F"};
const std::vector<std::vector<int64_t>> kLlamaSizes = {{16, 128, 256, 256, 6, 4, 2, 704},
                                                       {3, 96, 211, 192, 5, 2, 3, 300}};

// f32. A block keeps 4 + 2 / R values a channel: its input, q, attention's result, the first
// residual, and k and v of D / R channels each; gate and up of F channels; a scale of each of two
// norms; and a number for each of H = G R heads. Outside: logits, and of the last norm x, that
// scaled, its result and its scale.
TEST(ProgramProfile, LlamaSavesItsFormula) {
  const auto formula = [](auto& s) {
    const auto B = s.at("B"), T = s.at("T"), V = s.at("V"), D = s.at("D"), L = s.at("L"),
               G = s.at("G"), R = s.at("R"), F = s.at("F");
    return L * B * T * (16 * D + 8 * D / R + 8 * F + 8 + 4 * G * R) + 4 * B * T * V +
           12 * B * T * D + 4 * B * T;
  };
  expect_saved("llama.cad", kKept, kLlamaDims, formula, kLlamaSizes);
}

// With nothing computed twice: both norms' results too, silu's result times up, and probabilities.
TEST(ProgramProfile, LlamaSavesItsFormulaWithNothingRecomputed) {
  const auto formula = [](auto& s) {
    const auto B = s.at("B"), T = s.at("T"), V = s.at("V"), D = s.at("D"), L = s.at("L"),
               G = s.at("G"), R = s.at("R"), F = s.at("F");
    return L * B * T * (24 * D + 8 * D / R + 12 * F + 8 + 4 * G * R * T) + 4 * B * T * V +
           8 * B * T * D + 4 * B * T;
  };
  expect_saved("llama.cad", kAll, kLlamaDims, formula, kLlamaSizes);
}

const std::vector<std::string> kConvnetDims = {"B", "C", "Y", "X", "O", "O2", "V"};
const std::vector<std::vector<int64_t>> kConvnetSizes = {{64, 1, 28, 28, 16, 32, 10},
                                                         {5, 3, 32, 24, 6, 14, 7}};

// f32, nothing computed twice. Each of four convolutions keeps its patches, nine values a place and
// channel of what it reads, its result, and two sums a channel of its norm: the first reads Y x X
// places of C and gives O, the second, of strides 2 behind pooling, reads and gives a sixteenth of
// the places (of O, to O2), the others these of O2. Then the mean over places of O2, logits, a
// log-sum-exp a row, and the number of labels.
TEST(ProgramProfile, ConvnetSavesItsFormulaWithNothingRecomputed) {
  const auto formula = [](auto& s) {
    const auto B = s.at("B"), C = s.at("C"), O = s.at("O"), O2 = s.at("O2"), V = s.at("V");
    const auto places = B * s.at("Y") * s.at("X"), small = places / 16;
    const auto first = 9 * C * places + O * places + 2 * O;
    const auto second = 9 * O * small + O2 * small + 2 * O2;
    const auto third = 9 * O2 * small + O2 * small + 2 * O2;
    return 4 * (first + second + 2 * third + B * O2 + B * V + B + 1);
  };
  expect_saved("convnet.cad", kAll, kConvnetDims, formula, kConvnetSizes);
}

// As it is trained. Of the first convolution its patches, of its norm the centred results, a sum a
// channel and the count; what the second one reads is made of these again. Of the norms of the
// others what they centred, that scaled, their result (of the last one with x added), and a scale a
// channel; of the block's two convolutions their patches. Then the mean over places, logits, a
// log-sum-exp a row; which rows have labels, as a byte and as a number, and how many.
TEST(ProgramProfile, ConvnetSavesItsFormula) {
  const auto formula = [](auto& s) {
    const auto B = s.at("B"), C = s.at("C"), O = s.at("O"), O2 = s.at("O2"), V = s.at("V");
    const auto places = B * s.at("Y") * s.at("X"), small = places / 16;
    const auto first = 9 * C * places + O * places + O + 1;
    const auto norm = 3 * O2 * small + O2;
    return 4 * (first + 3 * norm + 2 * (9 * O2 * small) + B * O2 + B * V + B) + B + 4 * B + 4;
  };
  expect_saved("convnet.cad", kKept, kConvnetDims, formula, kConvnetSizes);
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

// A product of 64 x 32 by 32 x 16, however it is spelled: 2 FLOPs a multiply-add, 65,536. A bias is
// counted apart, as is the sum of the results, which stands for a loss: 1,024 each.
TEST(ProgramProfile, AProductIsOneHoweverItIsSpelled) {
  const auto forward = [](const std::string& definitions, const std::string& result) {
    const auto p = checked("dim N = 64, K = 32, M = 16\n" + definitions +
                           "model Net(x: [N, K]) -> [N, M] {\n  param W : [K, M] = normal(1)\n"
                           "  return " +
                           result + "\n}\n");
    EXPECT_FALSE(p->diagnostics.has_errors()) << p->text();
    auto graph = lower_model(*p->module, true, ir::DType::kF32);
    EXPECT_TRUE(graph.ok());
    const Profile got = ir::profile(std::move(*graph), bindings(*p->module));
    const auto at = [&](const ir::Amount& amount) {
      return amount.size(got.graph).evaluate(got.bindings).value;
    };
    return std::pair(at(got.total.forward.matmul), at(got.total.forward.other));
  };
  const std::pair<int64_t, int64_t> product = {65'536, 1'024};
  EXPECT_EQ(forward("", "x @[K] W"), product);
  EXPECT_EQ(
      forward("fn times(a: [N, K], w: [K, M]) -> [N, M] { return a @[K] w }\n", "times(x, W)"),
      product);
  EXPECT_EQ(forward("", "Linear[K -> M](x, bias: false)"), product);
  const std::pair<int64_t, int64_t> with_bias = {65'536, 2'048};
  EXPECT_EQ(forward("", "Linear[K -> M](x)"), with_bias);
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
