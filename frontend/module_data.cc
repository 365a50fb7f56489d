// frontend/module_data.cc -- look-ups in a Module and decisions about equations between sizes.
#include "frontend/module_data.h"

#include <algorithm>

namespace cad::frontend {

bool TypePattern::dots() const {
  return std::any_of(terms.begin(), terms.end(), [](const Term& t) { return t.dots; });
}

bool TypePattern::has_formal(int formal) const {
  return std::any_of(terms.begin(), terms.end(),
                     [&](const Term& t) { return !t.dots && t.formal == formal; });
}

int Signature::find_formal(const std::string& name) const {
  for (size_t i = 0; i < formals.size(); ++i) {
    if (formals[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int Signature::find_parameter(const std::string& name) const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const Def& Definition::def() const {
  return unit->ast.def(ast);
}
Span Definition::name_span() const {
  return def().name.span;
}

Definition* Module::find(const Unit& unit, const std::string& name) {
  if (auto at = unit.definitions.find(name); at != unit.definitions.end()) return at->second;
  if (auto at = library_definitions.find(name); at != library_definitions.end()) return at->second;
  return nullptr;
}

const Definition* Module::find(const Unit& unit, const std::string& name) const {
  return const_cast<Module*>(this)->find(unit, name);
}

const Definition* Module::find_member(const Unit& unit, const std::string& alias,
                                      const std::string& name) const {
  auto import = unit.imports.find(alias);
  if (import == unit.imports.end() || import->second == nullptr) return nullptr;
  auto at = import->second->definitions.find(name);
  return at == import->second->definitions.end() ? nullptr : at->second;
}

ir::Size with_known(const ir::Size& size, const ir::Bindings& symbols) {
  if (size.is_constant()) return size;
  std::map<std::string, ir::Size> by;
  for (const std::string& s : size.symbols()) {
    if (auto at = symbols.find(s); at != symbols.end()) by.emplace(s, ir::Size(at->second));
  }
  return by.empty() ? size : size.substitute(by);
}

Decision decide_equal(const ir::Size& left, const ir::Size& right, const ir::Bindings& symbols) {
  if (left == right) return Decision::kYes;
  const ir::Size difference = with_known(left, symbols) - with_known(right, symbols);
  if (auto c = difference.constant()) return *c == 0 ? Decision::kYes : Decision::kNo;
  // A constant that is not whole (10 / 4 against 2) never equals a size.
  if (difference.is_constant() || difference.symbols().empty()) return Decision::kNo;
  return Decision::kOpen;
}

Decision decide_at_most(const ir::Size& left, const ir::Size& right, const ir::Bindings& symbols) {
  const ir::Size room = with_known(right, symbols) - with_known(left, symbols);
  if (auto c = room.constant()) return *c >= 0 ? Decision::kYes : Decision::kNo;
  return Decision::kOpen;
}

Decision decide_whole(const ir::Size& size, const ir::Bindings& symbols) {
  const ir::Size known = with_known(size, symbols);
  if (known.symbols().empty()) return known.evaluate({}).ok() ? Decision::kYes : Decision::kNo;
  const std::string text = known.str();
  // Without a division and a subtraction it is whole for any binding.
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '-') return Decision::kOpen;
    if (text[i] == '/') {
      if (i + 1 < text.size() && text[i + 1] == '/') {
        ++i;
        continue;
      }
      return Decision::kOpen;
    }
  }
  return Decision::kYes;
}

std::string reader_text(const ir::Size& size) {
  std::string text = size.str();
  text.erase(std::remove(text.begin(), text.end(), '$'), text.end());
  return text;
}

}  // namespace cad::frontend
