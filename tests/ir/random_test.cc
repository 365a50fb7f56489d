// tests/ir/random_test.cc -- Philox against the published known answers; moments of what is drawn.
#include "ir/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cad::ir {
namespace {

using Words = std::array<uint32_t, 4>;

// Random123's kat_vectors, philox4x32 with 10 rounds: counter words, then key words.
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, KeysDifferInEveryPart) {
  const int64_t a[] = {1, 2}, b[] = {2, 1};
  const uint64_t site = site_hash("h.{}.dropout");
  EXPECT_NE(stream_key(1, site, a), stream_key(2, site, a));
  EXPECT_NE(stream_key(1, site, a), stream_key(1, site_hash("h.{}.dropout_1"), a));
  EXPECT_NE(stream_key(1, site, a), stream_key(1, site, b));
  EXPECT_NE(stream_key(1, site, {}), stream_key(1, site, a));
  EXPECT_EQ(site_hash(""), 0xcbf29ce484222325ULL);  // FNV-1a's published values
  EXPECT_EQ(site_hash("a"), 0xaf63dc4c8601ec8cULL);
}

TEST(Random, Moments) {
  const int n = 20000;
  double u = 0, u2 = 0, z = 0, z2 = 0, z4 = 0;
  for (int i = 0; i < n; ++i) {
    const Words w = philox(stream_key(7, site_hash("x"), {}), static_cast<uint64_t>(i), 3);
    const double x = uniform01(w[0]), y = standard_normal(w[0], w[1]);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    u += x, u2 += x * x, z += y, z2 += y * y, z4 += y * y * y * y;
  }
  EXPECT_NEAR(u / n, 0.5, 0.01);
  EXPECT_NEAR(u2 / n, 1.0 / 3, 0.01);
  EXPECT_NEAR(z / n, 0, 0.03);
  EXPECT_NEAR(z2 / n, 1, 0.05);
  EXPECT_NEAR(z4 / n, 3, 0.3);
}

TEST(Random, NormalIsFiniteAtTheEnds) {
  EXPECT_TRUE(std::isfinite(standard_normal(0, 0)));
  EXPECT_EQ(standard_normal(0xffffffff, 0), 0);
  EXPECT_EQ(uniform01(0xffffffff), 1 - 0x1.0p-24F);
}

}  // namespace
}  // namespace cad::ir
