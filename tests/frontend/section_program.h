// tests/frontend/section_program.h -- a program given as text, checked, with its diagnostics: what
// the tests of sections, settings and lower_train start from. Files other than the program are not
// there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/render.h"
#include "frontend/module.h"
#include "frontend/module_data.h"
#include "frontend/parse.h"
#include "frontend/section_data.h"

namespace cad::frontend {

struct NoFiles : FileReader {
  Result<std::string> read(const std::string& path) override {
    return make_error(DiagId::E0601, "no file `" + path + "`", kExitNoInput);
  }
};

struct Program {
  Sources sources;
  Diagnostics diagnostics;
  std::shared_ptr<const Module> module;

  explicit Program(const std::string& text, const std::vector<Setting>& settings = {},
                   const std::string& train = "") {
    auto file = load_source(sources, "net.cad", text);
    EXPECT_TRUE(file.ok());
    NoFiles files;
    CheckOptions options;
    options.settings = settings;
    options.train = train;
    module = check(sources, *file, files, options, diagnostics);
  }
  [[nodiscard]] std::string errors() const { return render_short(diagnostics, sources); }
  [[nodiscard]] ir::TrainSpec lowered() const {
    EXPECT_FALSE(diagnostics.has_errors()) << errors();
    auto spec = lower_train(*module);
    EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
    return spec.ok() ? std::move(*spec) : ir::TrainSpec{};
  }
};

// A small language model; `train` is what stands after it.
inline std::string with_model(const std::string& train) {
  return "dim B, T = 8, S = T, V = 256, D = 16, H = 4, K = D / H, L = 3\n"
         "let rate = 1e-3\n"
         "model Net(x: i32[B, T]) -> [B, T, V] {\n"
         "  param wte : [V, D] = normal(0.02)\n"
         "  x = wte[V = x]\n"
         "  repeat L as h { x = x + Linear[D -> D](LayerNorm[D](x)) }\n"
         "  return x @[D] wte\n"
         "}\n" +
         train;
}

inline std::string with_train(const std::string& more,
                              const std::string& optimizer = "adamw(lr: rate, decay: 0.1)") {
  return with_model(
      "train {\n  data: text(\"a.txt\", x: i32[B, T], y: i32[B, T])\n  loss: "
      "cross_entropy[V](Net(x), y)\n  optimizer: " +
      optimizer + "\n" + more + "\n}\n");
}

}  // namespace cad::frontend
