// cli/commands.cc -- the table of subcommands, from commands.def.
#include "cli/command.h"

namespace cad::cli {

#define CAD_COMMAND(name, summary, examples) \
  Action declare_##name(CLI::App& app, CommonOptions& common);
#include "cli/commands.def"
#undef CAD_COMMAND

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands{
#define CAD_COMMAND(name, summary, examples) {#name, summary, examples, declare_##name},
#include "cli/commands.def"
#undef CAD_COMMAND
  };
  return kCommands;
}

}  // namespace cad::cli
