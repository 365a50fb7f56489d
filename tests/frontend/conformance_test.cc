// tests/frontend/conformance_test.cc -- every program of tests/conformance: the errors that its
// comments announce and no others; those with a model lower to graphs that verify, in training and
// evaluation, in f32 and bf16.
#include <fstream>
#include <sstream>

#include "tests/frontend/frontend_testing.h"

namespace cad::frontend {
namespace {

const std::string kFolder = std::string(COLAUTO_SOURCE_DIR) + "/tests/conformance/";

struct Disk : FileReader {
  Result<std::string> read(const std::string& path) override {
    std::ifstream in(path, std::ios::binary);
    if (!in) return make_error(DiagId::E0106, "no such file", kExitNoInput);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
};

std::unique_ptr<Checked> program(const std::string& name) {
  auto p = std::make_unique<Checked>();
  Disk disk;
  Result<std::string> text = disk.read(kFolder + name + ".cad");
  EXPECT_TRUE(text.ok()) << name;
  Result<FileId> file = load_source(p->sources, kFolder + name + ".cad", *text);
  p->module = check(p->sources, *file, disk, {}, p->diagnostics);
  return p;
}

class Right : public testing::TestWithParam<const char*> {};

TEST_P(Right, ChecksAndLowers) {
  auto p = program(GetParam());
  EXPECT_FALSE(p->diagnostics.has_errors()) << p->text();
  for (const bool training : {true, false}) {
    for (const ir::DType precision : {ir::DType::kF32, ir::DType::kBF16})
      lowered(*p, training, precision);
  }
}

INSTANTIATE_TEST_SUITE_P(Conformance, Right,
                         testing::Values("llama", "bert", "vit", "convnet", "moe", "tying",
                                         "gather", "multi", "extended", "lora", "gru", "resnet18"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Conformance, ErrorsAreThoseOfTheComments) {
  EXPECT_EQ(program("generics")->ids(), "E0204:26");
  EXPECT_EQ(program("rename")->ids(), "E0204:4 E0203:9");
  EXPECT_EQ(program("split")->ids(), "E0206:7");
  EXPECT_EQ(program("slice")->ids(), "E0212:5");
  EXPECT_EQ(program("train")->ids(), "E0318:20");
  auto misc = program("misc");
  for (const char* wanted :
       {"E0203:5", "L0002:5", "E0205:16", "E0009:17", "E0105:24", "E0101:26"}) {
    EXPECT_NE(misc->ids().find(wanted), std::string::npos) << wanted << "\n" << misc->text();
  }
  EXPECT_EQ(misc->diagnostics.errors(), 5U) << misc->text();
}

TEST(Conformance, ImportedModelTakesTheImportersSizes) {
  auto p = program("train");
  EXPECT_EQ(p->module->declared.at("V"), 256);
  EXPECT_EQ(p->module->declared.at("D"), 4096);
}

}  // namespace
}  // namespace cad::frontend
