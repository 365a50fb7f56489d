// cli/main.cc -- chooses the command, parses its flags, runs it. Usage errors become Diagnostics
// with did-you-mean and status 2. Commands are in commands.def.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "base/suggest.h"
#include "base/unexpected.h"
#include "cli/command.h"

namespace cad::cli {
namespace {

std::string overview() {
  std::string text =
      "colauto compiles .cad programs, models over tensors with named dims, and trains them\n\n"
      "  colauto run gpt.cad            train\n"
      "  colauto check gpt.cad          find errors\n\n"
      "usage: colauto COMMAND [ARGUMENTS]\n\ncommands:\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  return text + "\n`colauto COMMAND --help` shows the flags of a command\n";
}

int usage_error(const CommonOptions& common, Diagnostic diagnostic, const char* command) {
  diagnostic.help(command == nullptr ? "`colauto --help` lists the commands"
                                     : fmt::format("`colauto {} --help` lists its flags", command));
  return fail(common, diagnostic);
}

int unknown_command(const CommonOptions& common, const std::string& word) {
  Diagnostic error =
      make_error(DiagId::E0501, fmt::format("unknown command `{}`", word), kExitUsage);
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  if (word.size() > 4 && word.compare(word.size() - 4, 4, ".cad") == 0) {
    error.help(fmt::format("to train it: `colauto run {}`", word));
  } else if (const auto near = suggest(word, names)) {
    error.help(fmt::format("did you mean `{}`?", *near));
  }
  return usage_error(common, std::move(error), nullptr);
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// A flag's or argument's words that nothing took.
int leftover(const CommonOptions& common, const CLI::App& app, const char* command,
             const std::vector<std::string>& rest) {
  const auto flag = std::find_if(rest.begin(), rest.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-';
  });
  if (flag == rest.end()) {
    return usage_error(
        common,
        make_error(DiagId::E0502, fmt::format("unexpected argument `{}`", rest[0]), kExitUsage),
        command);
  }
  const std::string name = flag->substr(0, flag->find('='));
  Diagnostic error = make_error(DiagId::E0502, fmt::format("unknown flag `{}`", name), kExitUsage);
  if (const auto near = suggest(name, flag_names(app))) {
    error.help(fmt::format("did you mean `{}`?", *near));
  } else if (name.size() > 2) {
    std::string setting = name.substr(2);
    std::replace(setting.begin(), setting.end(), '-', '_');
    error.note(fmt::format("settings of the program are given with `--set {}=..`", setting));
  }
  return usage_error(common, std::move(error), command);
}

// CLI11's texts in plain words: "--steps: Value 1e-3x not in range ..", "Could not convert: --seed
// = x".
std::string plain_text(const std::string& what) {
  std::string text = what;
  while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  const size_t colon = text.find(": ");
  const std::string flag = text.substr(0, colon);
  if (colon != std::string::npos && flag.size() > 1 && flag[0] == '-') {
    std::string rest = text.substr(colon + 2);
    if (rest.rfind("Value ", 0) == 0 && rest.find(" not in range ") != std::string::npos) {
      const std::string value = rest.substr(6, rest.find(" not in range ") - 6);
      return fmt::format("bad value of `{}`: `{}` is not a number in its range", flag, value);
    }
    if (const size_t list = rest.find(" not in {"); list != std::string::npos) {
      std::string known = rest.substr(list + 9, rest.size() - list - 10);
      for (size_t at = 0; (at = known.find(',', at)) != std::string::npos; at += 2)
        known.insert(at + 1, " ");
      return fmt::format("bad value of `{}`: `{}` is none of {}", flag, rest.substr(0, list),
                         known);
    }
    if (rest.rfind("At Most 1 required but received", 0) == 0)
      return fmt::format("`{}` is given more than once", flag);
    if (rest.size() > 8 && rest.compare(rest.size() - 8, 8, " missing") == 0)
      return fmt::format("`{}` needs a value", flag);
    if (!rest.empty() && rest[0] == '`') return fmt::format("bad value of `{}`: {}", flag, rest);
  }
  if (const size_t excludes = text.find(" excludes "); excludes != std::string::npos) {
    return fmt::format("`{}` and `{}` do not go together", text.substr(0, excludes),
                       text.substr(excludes + 10));
  }
  if (text.rfind("Could not convert: ", 0) == 0) {
    const std::string pair = text.substr(19);
    const size_t equals = pair.find(" = ");
    if (equals != std::string::npos) {
      return fmt::format("bad value of `{}`: `{}`", pair.substr(0, equals),
                         pair.substr(equals + 3));
    }
  }
  if (std::isupper(static_cast<unsigned char>(text[0])) != 0 &&
      std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

// Diagnostics have to follow --error-format and --color even when parsing fails.
void peek_format(int argc, char** argv, CommonOptions& common) {
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if ((word == "--error-format" || word == "--color") && i + 1 < argc)
      word += std::string("=") + argv[i + 1];
    if (word == "--error-format=short") common.error_format = ErrorFormat::kShort;
    if (word == "--error-format=json") common.error_format = ErrorFormat::kJson;
    if (word == "--color=always") common.color = ColorMode::kAlways;
    if (word == "--color=never") common.color = ColorMode::kNever;
  }
}

void add_everywhere_flags(CLI::App& app, CommonOptions& common) {
  const std::map<std::string, ErrorFormat> formats{
      {"human", ErrorFormat::kHuman}, {"short", ErrorFormat::kShort}, {"json", ErrorFormat::kJson}};
  const std::map<std::string, ColorMode> colors{
      {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};
  app.add_option_function<std::string>(
         "--error-format",
         [&common, formats](const std::string& value) { common.error_format = formats.at(value); },
         "how messages look: human, short or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(std::vector<std::string>{"human", "short", "json"}));
  app.add_option_function<std::string>(
         "--color",
         [&common, colors](const std::string& value) { common.color = colors.at(value); },
         "auto, always or never; NO_COLOR is honoured")
      ->type_name("WHEN")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "always", "never"}));
  app.add_flag("-q,--quiet", common.quiet, "print results only");
  app.add_flag("-v,--verbose", common.verbose, "say more");
}

// A flag that this build has no devices for.
bool check_devices(const Command& command, const CommonOptions& common, int& status) {
#ifndef COLAUTO_CUDA
  // planning needs no device
  const std::string name = command.name;
  const bool runs = name != "plan" && name != "cost" && name != "repl";
  if (common.gpus && runs) {
    Diagnostic error = make_error(DiagId::E0504, "this build has no CUDA support", kExitUsage);
    error.note("`--gpus` needs a build with the CUDA toolkit (cuBLAS, NVRTC) installed")
        .help("run on the CPU instead: `--devices 1`");
    status = fail(common, error);
    return false;
  }
#endif
  return true;
}

// `--budget "$UNSET"` is a slip, not the default. A prompt may be empty; `--resume` alone is.
void refuse_empty_values(CLI::App& app) {
  const auto check = [](const std::string& text) { return text.empty() ? "value missing" : ""; };
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->get_items_expected_max() == 0 || name == "--prompt" || name == "--resume") continue;
    option->check(CLI::Validator(check, ""));
  }
}

int run_command(const Command& command, int argc, char** argv, CommonOptions& common) {
  std::string description = fmt::format("{}\n\nexamples:\n", command.summary);
  std::string_view examples = command.examples;
  while (!examples.empty()) {
    const size_t end = std::min(examples.find('\n'), examples.size());
    description += fmt::format("  {}\n", examples.substr(0, end));
    examples.remove_prefix(std::min(end + 1, examples.size()));
  }
  CLI::App app(description, fmt::format("colauto {}", command.name));
  app.allow_extras();
  app.set_help_flag("-h,--help", "show this");
  const Action action = command.declare(app, common);
  add_everywhere_flags(app, common);
  refuse_empty_values(app);
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    // An unknown flag explains most other faults: say that first.
    const std::vector<std::string> rest = app.remaining();
    const bool flag = std::any_of(rest.begin(), rest.end(),
                                  [](const std::string& w) { return w.size() > 1 && w[0] == '-'; });
    if (flag) return leftover(common, app, command.name, rest);
    return usage_error(common, make_error(DiagId::E0503, plain_text(error.what()), kExitUsage),
                       command.name);
  }
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) {
    return leftover(common, app, command.name, rest);
  }
  int status = kExitOk;
  if (!check_devices(command, common, status)) return status;
  return action();
}

int run(int argc, char** argv) {
  CommonOptions common;
  peek_format(argc, argv, common);
  if (argc < 2) {
    std::fputs(overview().c_str(), stderr);
    return kExitUsage;
  }
  const std::string word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") {
    print(overview());
    return kExitOk;
  }
  for (const Command& command : commands()) {
    if (word == command.name ||
        (word == "--version" && std::strcmp(command.name, "version") == 0)) {
      return run_command(command, argc, argv, common);
    }
  }
  if (word.size() > 1 && word[0] == '-') {
    Diagnostic error =
        make_error(DiagId::E0502, fmt::format("unknown flag `{}`", word), kExitUsage);
    return usage_error(common, std::move(error), nullptr);
  }
  return unknown_command(common, word);
}

}  // namespace
}  // namespace cad::cli

int main(int argc, char** argv) {
  cad::report_on_terminate();
  int status = cad::kExitBug;
  try {
    status = cad::cli::run(argc, argv);
  } catch (const std::exception& error) {
    status = cad::cli::report_unexpected(error);
  }
  if (std::fflush(stdout) != 0) {
    std::fputs("error[E0505]: cannot write to standard output\n", stderr);
    if (status == cad::kExitOk) status = cad::kExitRunFailed;
  }
  return status;
}
