// cli/repl_commands.h -- the commands of the REPL, one row each: dispatch, `:help`, completion and
// did-you-mean all read the table. A command works on a Session and prints; it never exits.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/repl_session.h"

namespace cad::cli {

struct ReplContext {
  Session& session;
  const CommonOptions& common;
  int number = 0;       // of the input
  bool silent = false;  // the change was shown already: nothing is printed

  void print(std::string_view text) const;
  // Diagnostics that arose in `session` (which may be an attempt at a change).
  void report(const Session& session, const Diagnostics& diagnostics) const;
  [[nodiscard]] bool fail(const Diagnostic& diagnostic) const;  // reports; always false
};

enum class Argument { kNone, kText, kExpression, kFile, kSetting, kName, kCommand };

struct ReplCommand {
  const char* name;      // "type"
  const char* argument;  // "EXPR", "[LAYER]", ""
  const char* summary;   // one line
  const char* more;      // further lines for `:help NAME`; may be empty
  Argument takes;        // what completion offers; kExpression goes on over lines
  bool changes;          // the session
  bool (*run)(ReplContext& context, const std::string& argument);  // false: failed, reported
};
const std::vector<ReplCommand>& repl_commands();
const ReplCommand* find_repl_command(const std::string& name);

// ":set B=64" in two: {"set", "B=64"}. `:save!` is {"save!", ..}.
std::pair<std::string, std::string> split_command(const std::string& text);

// Does what one whole input asks for. False: it failed and said so.
bool run_input(ReplContext& context, const std::string& text);
// Whether run_input() may change the session.
bool input_changes(const std::string& text);

// Handlers that have a file of their own.
bool repl_doc(ReplContext& context, const std::string& argument);
bool repl_show(ReplContext& context, const std::string& argument);
bool repl_help(ReplContext& context, const std::string& argument);
bool repl_save(ReplContext& context, const std::string& argument);
bool repl_save_over(ReplContext& context, const std::string& argument);
bool repl_type(ReplContext& context, const std::string& argument);
bool repl_ir(ReplContext& context, const std::string& argument);
bool repl_grad(ReplContext& context, const std::string& argument);
bool repl_time(ReplContext& context, const std::string& argument);
bool repl_cost(ReplContext& context, const std::string& argument);
bool repl_mem(ReplContext& context, const std::string& argument);
bool repl_plan(ReplContext& context, const std::string& argument);
bool repl_why(ReplContext& context, const std::string& argument);
bool repl_expression(ReplContext& context, const std::string& text);

}  // namespace cad::cli
