// tests/runtime/example_spec.h -- the train section of an example program, by its file's name.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/render.h"
#include "frontend/module.h"
#include "frontend/parse.h"

namespace cad::backend::testing {

struct Folder : frontend::FileReader {
  Result<std::string> read(const std::string& path) override {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
};

// Empty where the program has errors, which fail the test.
inline ir::TrainSpec example_spec(const std::string& name,
                                  const std::vector<frontend::Setting>& settings,
                                  frontend::TrainUsage usage) {
  const std::string path = std::string(COLAUTO_SOURCE_DIR) + "/examples/" + name;
  Folder folder;
  Sources sources;
  Diagnostics diagnostics;
  auto file = frontend::load_source(sources, path, *folder.read(path));
  EXPECT_TRUE(file.ok());
  frontend::CheckOptions options;
  options.settings = settings;
  const auto module = frontend::check(sources, *file, folder, options, diagnostics);
  EXPECT_FALSE(diagnostics.has_errors()) << render_short(diagnostics, sources);
  if (diagnostics.has_errors()) return {};
  auto spec = frontend::lower_train(*module, usage);
  EXPECT_TRUE(spec.ok());
  return spec.ok() ? std::move(*spec) : ir::TrainSpec{};
}

}  // namespace cad::backend::testing
