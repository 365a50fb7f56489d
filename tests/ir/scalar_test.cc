// tests/ir/scalar_test.cc -- scalar expressions: folding, wholeness, sizes, text.
#include "ir/scalar.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cad::ir {
namespace {

Scalar p(const std::string& text) {
  auto scalar = Scalar::parse(text);
  EXPECT_TRUE(scalar.ok()) << text;
  return scalar.ok() ? *scalar : Scalar(-999);
}

TEST(Scalar, NumbersFold) {
  EXPECT_EQ(*p("1 + 2 * 3").number(), 7);
  EXPECT_EQ(*p("2 ^ 3 ^ 2").number(), 512);
  EXPECT_EQ(*p("-2 ^ 2").number(), -4);
  EXPECT_EQ(*p("7 // 2").number(), 3);
  EXPECT_EQ(*p("-7 % 4").number(), 1);
  EXPECT_DOUBLE_EQ(*p("0.02 / sqrt(16)").number(), 0.005);
  EXPECT_EQ(*p("max(3, min(9, 5))").number(), 5);
  EXPECT_TRUE(std::isinf(*p("-inf").number()));
  EXPECT_EQ(*p("exp(0) + abs(-2) + floor(2.5)").number(), 5);
}

TEST(Scalar, SizesNeedBindings) {
  const Scalar init = p("0.02 / sqrt(2 * L)");
  EXPECT_FALSE(init.number().has_value());
  EXPECT_FALSE(init.evaluate({}).has_value());
  EXPECT_DOUBLE_EQ(*init.evaluate({{"L", 8}}), 0.005);
  EXPECT_DOUBLE_EQ(*init.substitute({{"L", 8}}).number(), 0.005);
  EXPECT_EQ(*p("L - 5").evaluate({{"L", 3}}), -2);  // scalars may be negative, sizes not
  EXPECT_EQ(*p("1 / L").evaluate({{"L", 4}}), 0.25);
}

TEST(Scalar, AsSize) {
  EXPECT_EQ(p("2 * L + 1").as_size()->str(), "2*L + 1");
  EXPECT_EQ(p("D / H").as_size()->str(), "D/H");
  EXPECT_EQ(p("(Y + 1) // 2").as_size()->str(), "(Y + 1)//2");
  EXPECT_EQ(*p("7").as_size()->constant(), 7);
  EXPECT_FALSE(p("2.5").as_size().has_value());
  EXPECT_FALSE(p("sqrt(L)").as_size().has_value());
  EXPECT_FALSE(p("0.5 * L").as_size().has_value());
}

TEST(Scalar, Whole) {
  for (const char* text :
       {"7", "L * 2", "L - 3", "D // H", "4 / 2", "max(L, 3)", "floor(L / 2)", "-L"}) {
    EXPECT_TRUE(p(text).is_whole()) << text;
  }
  for (const char* text : {"1 / 2", "2.5", "sqrt(L)", "0.5 * L", "D / H", "L ^ 2.5", "inf"}) {
    EXPECT_FALSE(p(text).is_whole()) << text;
  }
}

TEST(Scalar, Equality) {
  EXPECT_EQ(p("L * 2"), p("2 * L"));
  EXPECT_EQ(Scalar(NAN), Scalar(NAN));
  EXPECT_FALSE(Scalar(0.0) == Scalar(-0.0));
  EXPECT_FALSE(p("sqrt(L)") == p("sqrt(K)"));
  EXPECT_FALSE(p("1 / L") == p("1 / K"));
  EXPECT_EQ(Scalar::size(Size(3)), Scalar(3.0));
}

TEST(Scalar, TextRoundTrips) {
  EXPECT_EQ(p("0.02 / sqrt(2*L)").str(), "0.02 / sqrt(2*L)");
  for (const char* text : {"0.02 / sqrt(2*L)",
                           "1e-06",
                           "0.1",
                           "-3",
                           "inf",
                           "-inf",
                           "nan",
                           "1 / (L / 2)",
                           "(1 / L) / 2",
                           "2 ^ (L / 3)",
                           "(L / 3) ^ 2",
                           "-(1 / L)",
                           "-(1 / L) ^ 2",
                           "1 - (2 - 1 / L)",
                           "1 / L - 2 - 0.5",
                           "floor(L / 2) % 3",
                           "L // 2 * 0.5",
                           "size(D/H)",
                           "0.5 * size((Y + 1)//2)",
                           "(2*L + 1) / 3",
                           "min(L, 3) - max(K, 2.5)",
                           "1e300 * L / 3",
                           "0.1 ^ -L",
                           "(-2) ^ (1 / L)",
                           "123456789012 / L",
                           "rsqrt(D / 7) * -0.5"}) {
    const Scalar scalar = p(text);
    auto again = Scalar::parse(scalar.str());
    ASSERT_TRUE(again.ok()) << scalar.str();
    EXPECT_EQ(*again, scalar) << text << " -> " << scalar.str() << " -> " << again->str();
    EXPECT_EQ(again->str(), scalar.str());
  }
}

TEST(Scalar, ParseRefuses) {
  for (const char* text :
       {"", "1 +", "sqrt()", "sqrt(1, 2)", "tan(1)", "(1", "1 2", "size(T", "?"}) {
    EXPECT_FALSE(Scalar::parse(text).ok()) << text;
  }
  EXPECT_FALSE(Scalar::parse(std::string(100000, '(')).ok());
}

}  // namespace
}  // namespace cad::ir
