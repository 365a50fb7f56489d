// tests/runtime/profile_peak_test.cc -- the profile's transient peak against the arena that the
// backend lays out for the same train step.
#include <cstdio>

#include "backend/compile.h"
#include "ir/passes.h"
#include "ir/profile.h"
#include "tests/runtime/example_spec.h"

namespace cad::backend {
namespace {

struct Case {
  const char* file;
  std::vector<frontend::Setting> settings;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.file;
}

class ProfilePeak : public ::testing::TestWithParam<Case> {};

TEST_P(ProfilePeak, IsWithinTenPercentOfTheArena) {
  const ir::TrainSpec spec =
      testing::example_spec(GetParam().file, GetParam().settings, frontend::TrainUsage::kCost);
  ASSERT_FALSE(spec.forward.outputs.empty());
  const ir::Profile profile = ir::profile(spec);
  CompileOptions compile_options;
  for (const ir::Output& output : profile.graph.outputs) {
    if (output.name.compare(0, 6, "state:") == 0) {
      compile_options.in_place.emplace_back(output.name, output.name.substr(6));
    } else {
      compile_options.accumulate.push_back(output.name);
    }
  }
  const Program program = compile(profile.graph, spec.bindings, compile_options);
  const double predicted = profile.peak(profile.extents(spec.bindings)).transient;
  const auto arena = static_cast<double>(program.transient_bytes());
  RecordProperty("predicted", std::to_string(predicted));
  RecordProperty("arena", std::to_string(arena));
  std::printf("%-14s predicted %.0f arena %.0f (%+.2f %%)\n", GetParam().file, predicted, arena,
              100 * (predicted / arena - 1));
  EXPECT_GT(predicted, 0.9 * arena);
  EXPECT_LT(predicted, 1.1 * arena);
}

INSTANTIATE_TEST_SUITE_P(Examples, ProfilePeak,
                         ::testing::Values(Case{"gpt.cad", {}}, Case{"gpt2-124m.cad", {}},
                                           Case{"gpt2-124m.cad", {{"precision", "bf16"}}},
                                           Case{"llama.cad", {}}, Case{"convnet.cad", {}},
                                           // where activations dominate, and weights
                                           Case{"mlp.cad", {{"B", "4096"}}},
                                           Case{"mlp.cad", {{"B", "1"}, {"F", "4096"}}}));

}  // namespace
}  // namespace cad::backend
