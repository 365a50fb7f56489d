// tests/frontend/frontend_testing.h -- programs as texts: check them, lower their model, run it in
// the reference interpreter with given values.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/render.h"
#include "frontend/module_data.h"
#include "frontend/parse.h"
#include "ir/interpreter.h"
#include "ir/text.h"

namespace cad::frontend {

struct Texts : FileReader {
  std::map<std::string, std::string> files;
  Result<std::string> read(const std::string& path) override {
    auto at = files.find(path);
    if (at == files.end()) return make_error(DiagId::E0106, "no such file", kExitNoInput);
    return at->second;
  }
};

struct Checked {
  Sources sources;
  Diagnostics diagnostics;
  std::shared_ptr<const Module> module;

  [[nodiscard]] std::string text() const { return render_human(diagnostics, sources); }
  // "E0203:4 L0001:7": ids with lines, in order of report.
  [[nodiscard]] std::string ids() const {
    std::string out;
    for (const Diagnostic& d : diagnostics.all()) {
      if (!out.empty()) out += " ";
      out += diag_name(d.id);
      if (d.primary)
        out += ":" + std::to_string(
                         sources.line_column(d.primary->span.file, d.primary->span.begin).line);
    }
    return out;
  }
};

inline std::unique_ptr<Checked> checked(const std::string& text,
                                        const std::map<std::string, std::string>& files = {},
                                        const CheckOptions& options = {}) {
  auto p = std::make_unique<Checked>();
  Texts reader;
  reader.files = files;
  Result<FileId> file = load_source(p->sources, "test.cad", text);
  if (!file.ok()) {
    p->diagnostics.add(file.error());
    return p;
  }
  p->module = check(p->sources, *file, reader, options, p->diagnostics);
  return p;
}

// The last model's graph; fails the test when something is wrong with it.
inline ir::Graph lowered(const Checked& p, bool training = true,
                         ir::DType precision = ir::DType::kF32) {
  EXPECT_FALSE(p.diagnostics.has_errors()) << p.text();
  if (p.diagnostics.has_errors()) return {};
  Result<ir::Graph> g = lower_model(*p.module, training, precision);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render_human(g.error(), p.sources));
  if (!g.ok()) return {};
  for (const std::string& fault : ir::verify(*g)) ADD_FAILURE() << fault;
  return *g;
}

inline std::vector<std::string> input_paths(const ir::Graph& g, ir::InputKind kind) {
  std::vector<std::string> paths;
  for (const ir::Input& in : g.inputs) {
    if (in.kind == kind) paths.push_back(in.path);
  }
  return paths;
}

using Values = std::map<std::string, std::vector<double>>;

// Outputs by name. Inputs by path; those not given are filled 0.1, 0.2, .. in a short cycle.
inline std::map<std::string, ir::Tensor> interpreted(const ir::Graph& g, const Values& values,
                                                     const ir::Bindings& bindings = {},
                                                     uint64_t seed = 1) {
  ir::EvalContext context;
  context.bindings = bindings;
  context.seed = seed;
  context.step = 1;
  std::vector<ir::Tensor> inputs;
  for (const ir::Input& in : g.inputs) {
    const ir::Type& type = g.type(in.value);
    ir::Tensor t;
    t.dtype = type.dtype;
    t.extents = ir::extents_of(g, type, bindings);
    size_t n = 1;
    for (int64_t e : t.extents) n *= static_cast<size_t>(e);
    auto given = values.find(in.path);
    if (given != values.end()) {
      t.data = given->second;
      EXPECT_EQ(t.data.size(), n) << in.path;
    } else {
      for (size_t i = 0; i < n; ++i) t.data.push_back(0.1 * static_cast<double>(i % 7 + 1));
    }
    inputs.push_back(std::move(t));
  }
  const std::vector<ir::Tensor> out = ir::interpret(g, inputs, context);
  std::map<std::string, ir::Tensor> named;
  for (size_t i = 0; i < out.size(); ++i) named[g.outputs[i].name] = out[i];
  return named;
}

inline void expect_values(const ir::Tensor& t, const std::vector<double>& wanted,
                          double tolerance = 1e-6) {
  ASSERT_EQ(t.data.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(t.data[i], wanted[i], tolerance) << "at " << i;
}

// With the program's own bindings and more.
inline std::map<std::string, ir::Tensor> run(const Checked& p, const ir::Graph& g,
                                             const Values& values, const ir::Bindings& more) {
  ir::Bindings bindings = p.module->bindings;
  for (const auto& [name, value] : more) bindings[name] = value;
  return interpreted(g, values, bindings);
}

// Checks, lowers and runs a one-model program; the first result.
inline ir::Tensor result_of(const std::string& text, const Values& values,
                            const ir::Bindings& more = {}, bool training = false) {
  auto p = checked(text);
  const ir::Graph g = lowered(*p, training);
  if (g.outputs.empty()) return {};
  ir::Bindings bindings = p->module->bindings;
  for (const auto& [name, value] : more) bindings[name] = value;
  return interpreted(g, values, bindings).at("result:0");
}

}  // namespace cad::frontend
