#include "base/render.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cad {
namespace {

Diagnostic broadcast_error(FileId file) {
  Diagnostic d = make_diagnostic(DiagId::E0001, Span{file, 10, 11},
                                 "`+` cannot combine [B, T, D] and [B, T, F]");
  d.label(Span{file, 8, 9}, "[B, T, D], D = 768").label(Span{file, 12, 13}, "[B, T, F], F = 3072");
  d.note("one side's dims must contain the other's").help("project first");
  return d;
}

TEST(Render, FrameHangsLabelsUnderTheirMarks) {
  Sources sources;
  const FileId file = sources.add("gpt.cad", "y\n  x = x + h\n");
  Diagnostics all;
  all.add(broadcast_error(file));
  EXPECT_EQ(render_human(all, sources),
            "error[E0001]: `+` cannot combine [B, T, D] and [B, T, F]\n"
            " --> gpt.cad:2:9\n"
            "  |\n"
            "2 |   x = x + h\n"
            "  |       - ^ - [B, T, F], F = 3072\n"
            "  |       |\n"
            "  |       [B, T, D], D = 768\n"
            "  = note: one side's dims must contain the other's\n"
            "  = help: project first\n");
}

TEST(Render, ShortAndJsonNameThePlace) {
  Sources sources;
  const FileId file = sources.add("gpt.cad", "y\n  x = x + h\n");
  Diagnostics all;
  all.add(broadcast_error(file));
  EXPECT_EQ(render_short(all, sources),
            "gpt.cad:2:9: error[E0001]: `+` cannot combine [B, T, D] and [B, T, F]\n");
  const auto j = render_json(all, sources);
  EXPECT_EQ(j["diagnostics"][0]["line"], 2);
  EXPECT_EQ(j["diagnostics"][0]["end_column"], 10);
  EXPECT_EQ(j["diagnostics"][0]["labels"].size(), 2U);
}

TEST(Render, TwentyErrorsAtMostAndInOrder) {
  Sources sources;
  const FileId file = sources.add("m.cad", std::string(100, 'x'));
  Diagnostics all;
  for (uint32_t i = 0; i < 30; ++i) {
    all.add(make_diagnostic(DiagId::E0001, Span{file, 99 - i, 100 - i}, "e"));
  }
  const std::string text = render_short(all, sources);
  EXPECT_EQ(text.substr(0, 9), "m.cad:1:7");  // the 71st column is the first
  EXPECT_NE(text.find("10 more errors not shown"), std::string::npos);
}

TEST(Render, LongLinesAreCut) {
  Sources sources;
  const FileId file = sources.add("m.cad", std::string(100000, 'x'));
  Diagnostics all;
  all.add(make_diagnostic(DiagId::E0001, Span{file, 50000, 50003}, "here"));
  EXPECT_LT(render_human(all, sources).size(), 1000U);
}

}  // namespace
}  // namespace cad
