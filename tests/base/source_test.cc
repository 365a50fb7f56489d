#include "base/source.h"

#include <gtest/gtest.h>

namespace cad {
namespace {

// reports A5: the same place whatever ends the lines.
TEST(Source, LineEndsOfEveryKindGiveTheSamePlace) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    Sources sources;
    const std::string text = "a" + end + end + "b = \tc" + end;
    const FileId file = sources.add("m.cad", text);
    const auto offset = static_cast<uint32_t>(text.find('c'));
    const LineColumn at = sources.line_column(file, offset);
    EXPECT_EQ(at.line, 3);
    EXPECT_EQ(at.column, 6);  // a tab is one column
    EXPECT_EQ(sources.line_text(file, 3), "b = \tc");
    EXPECT_EQ(sources.line_text(file, 2), "");
  }
}

TEST(Source, ColumnsCountCodePoints) {
  Sources sources;
  const FileId file = sources.add("m.cad", "\xC3\xA4\xE2\x82\xAC x");  // a-umlaut, euro sign
  EXPECT_EQ(sources.line_column(file, 6).column, 4);
  EXPECT_EQ(sources.line_column(file, 1).column, 1);  // inside the first one
}

TEST(Source, OffsetsPastTheEndAreTheEnd) {
  Sources sources;
  const FileId file = sources.add("m.cad", "ab\ncd");
  EXPECT_EQ(sources.line_column(file, 1000).line, 2);
  EXPECT_EQ(sources.line_column(file, 1000).column, 3);
  EXPECT_EQ(sources.line_text(file, 9), "");
}

}  // namespace
}  // namespace cad
