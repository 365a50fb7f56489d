// frontend/settings.cc -- see settings.h.
#include "frontend/settings.h"

namespace cad::frontend {

std::vector<SectionId> train_sections(const Ast& ast) {
  std::vector<SectionId> found;
  for (const Item& item : ast.items) {
    if (item.kind == ItemKind::kSection && ast.section(item.section).kind.text == "train") {
      found.push_back(item.section);
    }
  }
  return found;
}

const Section* chosen_train(const Module& module) {
  const Ast& ast = module.main().ast;
  const Section* chosen = nullptr;
  for (SectionId id : train_sections(ast)) {
    const Section& section = ast.section(id);
    if (module.options.train.empty() || section.name.text == module.options.train) chosen = &section;
  }
  return chosen;
}

void read_settings(Module&, Diagnostics&) {}

}  // namespace cad::frontend
