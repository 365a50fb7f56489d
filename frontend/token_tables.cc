// frontend/token_tables.cc -- what kinds of tokens there are: keywords, units, operand edges.
#include <array>
#include <utility>

#include "frontend/tokens.h"

namespace cad::frontend {

bool ends_operand(Tok kind) {
  switch (kind) {
    case Tok::NAME:
    case Tok::NUMBER:
    case Tok::QUANTITY:
    case Tok::STRING:
    case Tok::RPAREN:
    case Tok::RBRACK:
    case Tok::DOTS:
      return true;
    default:
      return false;
  }
}

bool starts_operand(Tok kind) {
  switch (kind) {
    case Tok::NAME:
    case Tok::NUMBER:
    case Tok::QUANTITY:
    case Tok::STRING:
    case Tok::LPAREN:
    case Tok::MINUS:
    case Tok::NOT:
      return true;
    default:
      return false;
  }
}

bool is_operator(Tok kind) {
  switch (kind) {
    case Tok::PLUS:
    case Tok::MINUS:
    case Tok::STAR:
    case Tok::SLASH:
    case Tok::DSLASH:
    case Tok::PERCENT:
    case Tok::CARET:
    case Tok::LT:
    case Tok::LE:
    case Tok::GT:
    case Tok::GE:
    case Tok::EQ:
    case Tok::NE:
    case Tok::AND:
    case Tok::OR:
    case Tok::NOT:
    case Tok::PIPE:
    case Tok::ATL:
      return true;
    default:
      return false;
  }
}

bool is_reserved(Tok kind) {
  switch (kind) {
    case Tok::PARAM:
    case Tok::STATE:
    case Tok::USE:
    case Tok::REPEAT:
    case Tok::RETURN:
    case Tok::AS:
    case Tok::NOT:
    case Tok::AND:
    case Tok::OR:
      return true;
    default:
      return false;
  }
}

std::vector<std::string> item_keywords() {
  return {"import", "dim", "let", "fn", "layer", "model"};
}

std::vector<std::string> statement_keywords() {
  return {"param", "state", "use", "repeat", "return", "dim"};
}

Tok keyword_kind(std::string_view word) {
  static constexpr std::array<std::pair<std::string_view, Tok>, 15> kKeywords{{
      {"import", Tok::IMPORT},
      {"as", Tok::AS},
      {"dim", Tok::DIM},
      {"let", Tok::LET},
      {"fn", Tok::FN},
      {"layer", Tok::LAYER},
      {"model", Tok::MODEL},
      {"param", Tok::PARAM},
      {"state", Tok::STATE},
      {"use", Tok::USE},
      {"repeat", Tok::REPEAT},
      {"return", Tok::RETURN},
      {"not", Tok::NOT},
      {"and", Tok::AND},
      {"or", Tok::OR},
  }};
  for (const auto& [text, kind] : kKeywords) {
    if (text == word) return kind;
  }
  return Tok::NONE;
}

const std::vector<std::string>& units() {
  static const std::vector<std::string> kUnits{
      "B",    "KB",   "MB",   "GB",   "TB",   "KiB",  "MiB",    "GiB",    "TiB",
      "MB/s", "GB/s", "TB/s", "Mb/s", "Gb/s", "Tb/s", "GFLOPS", "TFLOPS", "PFLOPS",
      "ns",   "us",   "ms",   "s",    "min",  "h",    "tokens", "steps"};
  return kUnits;
}

bool is_unit(std::string_view word) {
  for (const std::string& unit : units()) {
    if (unit == word) return true;
  }
  return false;
}

}  // namespace cad::frontend
