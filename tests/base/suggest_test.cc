#include "base/suggest.h"

#include <gtest/gtest.h>

namespace cad {
namespace {

TEST(Suggest, DistanceCountsATranspositionOnce) {
  EXPECT_EQ(edit_distance("retrun", "return"), 1);
  EXPECT_EQ(edit_distance("modle", "model"), 1);
  EXPECT_EQ(edit_distance("gleu", "gelu"), 1);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("layernorm", "LayerNorm"), 0);
}

TEST(Suggest, NearestWithinReach) {
  EXPECT_EQ(suggest("optimzer", {"order", "optimizer", "loss"}), "optimizer");
  EXPECT_EQ(suggest("x", {"y", "zebra"}), std::nullopt);  // one letter shares nothing
  EXPECT_EQ(suggest("lerning-rate", {"steps", "seed"}), std::nullopt);
  EXPECT_EQ(suggest("", {"a"}), std::nullopt);
}

}  // namespace
}  // namespace cad
