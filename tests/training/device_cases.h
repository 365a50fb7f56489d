// tests/training/device_cases.h -- a small program on devices that are threads against itself on
// one device: losses, norms, weights and evaluations, under random legal plans or given ones. Files
// of data come from numbers. One step up: device_runs.h.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/npy_file.h"
#include "tests/training/device_runs.h"
#include "tests/training/training_testing.h"

namespace cad::backend {

using Sizes = std::vector<std::vector<int>>;
inline const Sizes kMeshes = {{2}, {3}, {2, 2}};

class DeviceCases : public ::testing::Test {
 protected:
  // A npy file's name.
  template <class T>
  std::string npy(const std::string& name, const std::vector<int>& shape,
                  const std::vector<T>& values) const {
    folder_.write(name, npy_file(shape, values));
    return "\"" + folder_.file(name) + "\"";
  }

  static void expect_near(const std::vector<double>& a, const std::vector<double>& b,
                          const std::string& what, double relative) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i]) + 1e-7) << what << ", step " << i + 1;
  }
  static void expect_equal(const DeviceRun& many, const DeviceRun& one, const std::string& what) {
    ASSERT_EQ(many.error, "") << what;
    expect_near(many.losses, one.losses, what + " losses", 1e-5);
    expect_near(many.norms, one.norms, what + " norms", 1e-4);
    for (const auto& [name, values] : one.weights) {
      const std::vector<float>& got = many.weights.at(name);
      ASSERT_EQ(got.size(), values.size()) << what << name;
      double difference = 0, norm = 1e-12;
      for (size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(double{got[i]} - double{values[i]}, 2);
        norm += std::pow(double{values[i]}, 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm)) << what << ": " << name;
    }
    for (size_t e = 0; e < one.evals.size(); ++e) {
      for (size_t v = 0; v < one.evals[e].values.size(); ++v) {
        EXPECT_NEAR(many.evals[e].values[v].second, one.evals[e].values[v].second,
                    1e-5 * std::abs(one.evals[e].values[v].second) + 1e-7)
            << what << ": " << one.evals[e].values[v].first;
      }
    }
  }

  // One device's run, after the random plans of every mesh have been compared with it.
  DeviceRun compare(const std::string& text, int steps = 3, int plans = 2,
                    const Sizes& meshes = kMeshes) {
    const WholeModel m = whole_model(text, {});
    const DeviceRun one = run_on(m.spec, nullptr, steps);
    EXPECT_EQ(one.error, "");
    for (const std::vector<int>& sizes : meshes) {
      const planner::Mesh mesh = test_mesh(sizes);
      for (int i = 0; i < plans; ++i) {
        const PlanOfDevices plan =
            plan_from("random", RandomPlacement(m.forward, m.extents, mesh, seed_++).make());
        expect_equal(run_on(m.spec, plan, steps), one,
                     mesh.str() + " seed " + std::to_string(seed_ - 1));
      }
    }
    return one;
  }
  testing::TemporaryFolder folder_;
  uint32_t seed_ = 1;
};

// A loss of parameters alone; `p` is N ones, `i` counts them.
inline std::string of_parameters(int n, const std::string& loss, const std::string& more = "") {
  return "dim B, N = " + std::to_string(n) + more +
         "\nmodel Net(z: [B]) -> f32[] {\n  param p : [N] = ones\n"
         "  i = f32(iota[N])\n  x = p * i\n  s = sum[N](x)\n  return " +
         loss +
         "\n}\ntrain t {\n  data: synthetic(z: f32[B])\n  loss: Net(z)\n"
         "  optimizer: sgd(lr: 1e-3)\n  B: 6, steps: 3\n}\n";
}

}  // namespace cad::backend
