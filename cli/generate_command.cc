// cli/generate_command.cc -- `colauto generate`: samples from a token model. Models of 256 tokens
// read and write text (bytes); others take and print token ids.
#include <iostream>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "backend/inference.h"
#include "backend/interrupt.h"
#include "cli/training_common.h"

namespace cad::cli {
namespace {

struct GenerateFlags {
  std::string prompt = "\n";
  int64_t tokens = 200, top_k = 0;
  double temperature = 1;
};

Result<std::vector<int32_t>> prompt_tokens(const std::string& text, int64_t vocabulary) {
  std::vector<int32_t> tokens;
  if (vocabulary == 256) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  } else {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      char* end = nullptr;
      const long id = std::strtol(word.c_str(), &end, 10);
      if (*end != '\0' || id < 0 || id >= vocabulary) {
        Diagnostic error =
            make_error(DiagId::E0503,
                       fmt::format("`--prompt`: `{}` is not a token id below {}", word, vocabulary),
                       kExitUsage);
        error.note("the model's vocabulary is not bytes, so prompts are token ids");
        return error;
      }
      tokens.push_back(static_cast<int32_t>(id));
    }
  }
  if (tokens.empty()) tokens.push_back(vocabulary == 256 ? '\n' : 0);
  return tokens;
}

int run_generate(const GenerateFlags& flags, const CommonOptions& common) {
  if (auto error = check_one_device(common, "generate")) return fail(common, *error);
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  auto graph = frontend::lower_model(*program.module, false, ir::DType::kF32);
  if (!graph.ok()) return fail(common, program.sources, graph.error());
  ir::Bindings bindings = frontend::bindings(*program.module);
  if (graph->batch_dim.valid()) {
    for (const std::string& symbol : graph->dim(graph->batch_dim).size.symbols())
      bindings[symbol] = 1;
  }
  if (auto error = unbound_dim(*graph, bindings)) return fail(common, program.sources, *error);
  std::string folder;
  bool average = false;
  if (auto spec = frontend::lower_train(*program.module); spec.ok()) {
    folder = save_folder(common, *spec);
    average = spec->ema.has_value();
  }
  const auto files = trained_files(common, folder, average);
  if (files.empty()) message(common, "note: no checkpoint found: sampling from initial parameters");
  auto inference = backend::Inference::create(
      std::move(*graph), bindings, static_cast<int>(common.threads_per_device.value_or(0)));
  auto model = backend::token_model(*inference);
  if (!model.ok()) return fail(common, program.sources, model.error());
  std::string text = flags.prompt;
  if (text == "-") {
    std::stringstream all;
    all << std::cin.rdbuf();
    text = all.str();
  }
  auto tokens = prompt_tokens(text, model->vocabulary);
  if (!tokens.ok()) return fail(common, tokens.error());
  std::vector<Diagnostic> warnings;
  if (Status status = inference->start(files, common.seed.value_or(0), warnings); !status.ok())
    return fail(common, program.sources, status.error());
  print_warnings(common, program.sources, warnings);
  backend::GenerateOptions options{flags.tokens, flags.temperature, flags.top_k,
                                   common.seed.value_or(0)};
  const bool bytes = model->vocabulary == 256;
  backend::InterruptGuard interrupts;
  if (bytes && text != "\n") print(text);
  backend::generate(*inference, *model, *tokens, options, [&](int32_t token) {
    print(bytes ? std::string(1, static_cast<char>(token)) : fmt::format("{} ", token));
    std::fflush(stdout);
    return backend::InterruptGuard::signal() == 0;
  });
  print("\n");
  const int signal = backend::InterruptGuard::signal();
  return signal == 0 ? kExitOk : 128 + signal;
}

}  // namespace

Action declare_generate(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<GenerateFlags>();
  add_program_flags(app, common);
  add_trained_flag(app, common);
  app.add_option("--prompt", own->prompt, "text to go on from; - is standard input")
      ->type_name("TEXT");
  app.add_option("--tokens", own->tokens, "how many to add (default 200)")
      ->type_name("N")
      ->check(at_least(0));
  app.add_option("--temperature", own->temperature,
                 "above 1 is wilder, 0 always the likeliest (default 1)")
      ->type_name("T")
      ->check(finite_from_zero());
  app.add_option("--top-k", own->top_k, "draw among the K likeliest (default: all)")
      ->type_name("K")
      ->check(at_least(1));
  app.add_option("--seed", common.seed, "another seed gives another text (default 0)")
      ->type_name("N")
      ->check(at_least(0));
  add_one_device_flags(app, common);
  return [own, &common] { return run_generate(*own, common); };
}

}  // namespace cad::cli
