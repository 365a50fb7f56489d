// tests/ir/size_test.cc -- dim algebra: canonical form, equality, evaluation, text.
#include "ir/size.h"

#include <gtest/gtest.h>

#include <chrono>

namespace cad::ir {
namespace {

Size s(const std::string& text) {
  auto size = Size::parse(text);
  EXPECT_TRUE(size.ok()) << text;
  return size.ok() ? *size : Size(-1);
}
using E = Size::EvalError;

TEST(Size, Constants) {
  EXPECT_EQ(Size(), Size(0));
  EXPECT_EQ(*(Size(3) * 4 - 5).constant(), 7);
  EXPECT_TRUE(s("T - T").is_constant());
  EXPECT_EQ(s("T - T"), Size(0));
  EXPECT_EQ(*s("6 / 3").constant(), 2);
  EXPECT_FALSE(s("1 / 2").is_constant());
  EXPECT_FALSE(s("T").constant().has_value());
}

TEST(Size, EqualityIsThatOfRationalFunctions) {
  EXPECT_EQ(s("H * (D / H)"), s("D"));
  EXPECT_EQ(s("2 * L"), s("L + L"));
  EXPECT_EQ(s("(A + B) * (A - B)"), s("A^2 - B^2"));
  EXPECT_EQ(s("(A^2 - B^2) / (A + B)"), s("A - B"));
  EXPECT_EQ(s("D / H / K"), s("D / (K * H)"));
  EXPECT_EQ(s("A / B + C / E"), s("(A * E + C * B) / (B * E)"));
  // Needs cross-multiplying: no gcd of polynomials is taken.
  EXPECT_EQ(s("(A^2 - B^2) / (A * C + B * C)"), s("(A - B) / C"));
  EXPECT_EQ(s("(A^2 - B^2) / (A^2 + 2*A*B + B^2)"), s("(A - B) / (A + B)"));
  EXPECT_FALSE(s("T") == s("S"));
  EXPECT_FALSE(s("T") == s("T + 1"));
  EXPECT_FALSE(s("D / H") == s("D // H"));
  EXPECT_FALSE(s("D") == Size(768));
}

TEST(Size, Floors) {
  EXPECT_EQ(*s("7 // 2").constant(), 3);
  EXPECT_EQ(*s("(0 - 7) // 2").constant(), -4);
  EXPECT_EQ(s("Y // 1"), s("Y"));
  EXPECT_EQ(s("(4 * Y) // 2"), s("2 * Y"));
  EXPECT_EQ(s("(Y - 1) // 2 + 1"), s("(Y + 1) // 2"));
  EXPECT_EQ(s("(Y + 2 * 1 - 2 - 1) // 1 + 1"), s("Y"));
  EXPECT_EQ(s("Y // 2 // 2"), s("Y // 4"));
  EXPECT_EQ(s("(2 * A) // (2 * B)"), s("A // B"));
  EXPECT_FALSE(s("Y // 2 * 2") == s("Y"));
  EXPECT_EQ(s("(B * Y + Y) // Y"), s("B + 1"));
}

TEST(Size, Evaluate) {
  const Bindings at{{"D", 768}, {"H", 12}, {"T", 5}, {"Z", 0}};
  EXPECT_EQ(s("D / H").evaluate(at).value, 64);
  EXPECT_EQ(s("8*D*T^2 + 4*H").evaluate(at).value, 8 * 768 * 25 + 48);
  EXPECT_EQ(s("(T + 1) // 2 - 1").evaluate(at).value, 2);
  EXPECT_EQ(s("(T - H) // 2 + H").evaluate(at).value, -4 + 12);  // floors also below 0
  EXPECT_EQ(s("Q").evaluate(at).error, E::kFree);
  EXPECT_EQ(s("Q").evaluate(at).detail, "Q");
  EXPECT_EQ(s("D / T").evaluate(at).error, E::kInexact);
  EXPECT_EQ(s("D / T").evaluate(at).detail, "768 / 5");
  EXPECT_EQ(s("T - H").evaluate(at).error, E::kNegative);
  EXPECT_EQ(s("T - H").evaluate(at).value, -7);
  EXPECT_EQ(s("D / Z").evaluate(at).error, E::kZeroDivision);
  EXPECT_EQ(s("D // Z").evaluate(at).error, E::kZeroDivision);
  EXPECT_EQ(s("D / 0").evaluate(at).error, E::kZeroDivision);
  EXPECT_DOUBLE_EQ(*s("D / T").evaluate_real(at), 153.6);
  EXPECT_FALSE(s("Q").evaluate_real(at).has_value());
}

TEST(Size, OverflowIsAnErrorNotANumber) {
  const Bindings at{{"X", INT64_MAX / 2}};
  EXPECT_EQ(s("4 * X").evaluate(at).error, E::kOverflow);
  EXPECT_EQ(s("X * X").evaluate(at).error, E::kOverflow);
  const Size big(INT64_MAX);
  EXPECT_EQ((big + 1).evaluate({}).error, E::kOverflow);
  EXPECT_EQ((big * Size::symbol("X") * 3).evaluate(at).error, E::kOverflow);
  EXPECT_FALSE(big + 1 == big + 2);
  EXPECT_EQ((Size(INT64_MIN) / -1).evaluate({}).error, E::kOverflow);
  EXPECT_EQ(Size(INT64_MAX).evaluate({}).value, INT64_MAX);
}

TEST(Size, Substitute) {
  const std::map<std::string, Size> by{{"K", s("D / H")}, {"Y", s("2 * Z")}};
  EXPECT_EQ(s("H * K").substitute(by), s("D"));
  EXPECT_EQ(s("Y // 2").substitute(by), s("Z"));
  EXPECT_EQ(s("T / K").substitute(by), s("T * H / D"));
  EXPECT_EQ(s("K + Q").substitute({{"K", 3}, {"Q", 4}}), Size(7));
  // At once, not one after the other.
  EXPECT_EQ(s("A + 2 * B").substitute({{"A", s("B")}, {"B", s("A")}}), s("B + 2 * A"));
}

TEST(Size, Symbols) {
  EXPECT_EQ(s("(T + 1) // S + D / H").symbols(), (std::vector<std::string>{"D", "H", "S", "T"}));
  EXPECT_TRUE(Size(3).symbols().empty());
}

TEST(Size, TextIsReadable) {
  EXPECT_EQ(s("T*8*B*D*D + B*4*T*S*D").str(), "8*B*D^2*T + 4*B*D*S*T");
  EXPECT_EQ(s("D / H").str(), "D/H");
  EXPECT_EQ(s("D / (H * K)").str(), "D/(H*K)");
  EXPECT_EQ(s("(D + 1) / (H - K)").str(), "(D + 1)/(H - K)");
  EXPECT_EQ(s("(Y + 1) // 2").str(), "(Y + 1)//2");
  EXPECT_EQ(s("1 - T").str(), "1 - T");
  EXPECT_EQ(s("0 - T").str(), "-T");
  EXPECT_EQ(s("2 * D / (2 * H)").str(), "D/H");
  EXPECT_EQ(Size(-3).str(), "-3");
}

TEST(Size, TextRoundTrips) {
  for (const char* text : {"0",
                           "-7",
                           "T",
                           "D.1",
                           "8*B*D^2*T + 4*B*D*S*T",
                           "D/H",
                           "(A + B)/(C*D)",
                           "(Y + 1)//2",
                           "-T",
                           "1 - T",
                           "(Y//2)*B + 3",
                           "((Y + 1)//2)^2",
                           "(A//B)//C",
                           "A//(B//C)",
                           "(A/B)//C + 1",
                           "B*((Y + 1)//2)/(H*K)",
                           "-A - B",
                           "(-A)//2",
                           "2*(A//3)/7",
                           "9223372036854775807*A"}) {
    const Size size = s(text);
    auto again = Size::parse(size.str());
    ASSERT_TRUE(again.ok()) << size.str();
    EXPECT_EQ(*again, size) << text << " -> " << size.str();
    EXPECT_EQ(again->str(), size.str());
  }
}

TEST(Size, ParseRefuses) {
  for (const char* text :
       {"", "T +", "(T", "T)", "2 ** 3", "T^-1", "T^99", "99999999999999999999", "a b", "?"}) {
    EXPECT_FALSE(Size::parse(text).ok()) << text;
  }
  EXPECT_FALSE(Size::parse(std::string(5000, '(')).ok());
  EXPECT_TRUE(Size::parse(std::string(5000, '-') + "T").ok());
}

TEST(Size, SingleSymbolsAreFast) {
  const auto start = std::chrono::steady_clock::now();
  const Size t = Size::symbol("T"), again = Size::symbol("T"), other = Size::symbol("S");
  int64_t equal = 0;
  for (int i = 0; i < 100000; ++i) equal += (t == again) + (t == other);
  EXPECT_EQ(equal, 100000);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.0);
}

}  // namespace
}  // namespace cad::ir
