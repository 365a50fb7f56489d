// ir/size_text.cc -- Size as text and back: "8*B*D^2*T + 4*B*D*S*T", "D/(H*K)", "(Y + 1)//2 - 3".
// Grammar: sum = product (("+" | "-") product)*; product = power (("*" | "/" | "//") power)*;
// power = primary ("^" number)?; primary = number | name | "(" sum ")" | "-" power.
#include <charconv>

#include "ir/size_rep.h"  // defines: Atom, Poly, SizeImpl
#include "ir/text_scanner.h"

namespace cad::ir {

namespace {

std::string monomial_text(const Monomial& m, uint64_t coefficient) {
  std::string text;
  if (coefficient != 1 || m.empty()) text = fmt::format("{}", coefficient);
  for (const AtomPower& factor : m) {
    if (!text.empty()) text += '*';
    // A floor's operands may be read together with its neighbours otherwise: (a//b)*c.
    text += factor.atom->is_floor() && (m.size() > 1 || coefficient != 1 || factor.power > 1)
                ? "(" + factor.atom->key + ")"
                : factor.atom->key;
    if (factor.power > 1) text += fmt::format("^{}", factor.power);
  }
  return text;
}

// Whether text stands unbracketed as an operand on the left, or right, of a division.
bool single_term(const Poly& poly) {
  return poly.size() == 1 && poly.begin()->second > 0;
}
bool single_factor(const Poly& poly) {
  if (!single_term(poly)) return false;
  const auto& [m, c] = *poly.begin();
  if (m.empty()) return true;
  return c == 1 && m.size() == 1 && !(m[0].atom->is_floor() && m[0].power == 1);
}

std::string bracketed(const std::string& text, bool bare) {
  return bare ? text : "(" + text + ")";
}

// A recursive-descent reader; `failed` is set at the first character it cannot place.
struct Reader : TextScanner {
  int64_t number() {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (error != std::errc()) failed = true;
    at = static_cast<size_t>(end - text.data());
    return value;
  }
  Size primary() {
    if (take("(")) {
      if (++depth > 1000) failed = true;
      Size inner = failed ? Size(0) : sum();
      --depth;
      if (!take(")")) failed = true;
      return inner;
    }
    blanks();
    if (digit()) return number();
    const std::string symbol = name();
    if (symbol.empty()) failed = true;
    return failed ? Size(0) : Size::symbol(symbol);
  }
  Size power() {
    if (take("-")) {
      // A loop, not recursion: "-----x" must not be deep.
      bool negative = true;
      while (take("-")) negative = !negative;
      Size value = power();
      return negative ? Size(0) - value : value;
    }
    Size base = primary();
    if (failed || !take("^")) return base;
    blanks();
    int64_t exponent = number();
    if (exponent < 0 || exponent > 64) failed = true;
    Size result = 1;
    for (int64_t i = 0; !failed && i < exponent; ++i) result = result * base;
    return result;
  }
  Size product() {
    Size value = power();
    while (!failed) {
      if (take("//")) {
        value = Size::floor_div(value, power());
      } else if (take("/")) {
        value = value / power();
      } else if (take("*")) {
        value = value * power();
      } else {
        break;
      }
    }
    return value;
  }
  Size sum() {
    Size value = product();
    while (!failed) {
      if (take("+")) {
        value = value + product();
      } else if (take("-")) {
        value = value - product();
      } else {
        break;
      }
    }
    return value;
  }
};

}  // namespace

// Highest degree first, except that a positive term leads if there is one: "H - D", not "-D + H".
std::string SizeImpl::poly_text(const Poly& poly) {
  if (poly.empty()) return "0";
  auto first = poly.begin();
  while (first != poly.end() && first->second < 0) ++first;
  if (first == poly.end()) first = poly.begin();
  auto magnitude = [](int64_t c) {
    return c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
  };
  std::string text =
      (first->second < 0 ? "-" : "") + monomial_text(first->first, magnitude(first->second));
  for (auto at = poly.begin(); at != poly.end(); ++at) {
    if (at == first) continue;
    text += at->second < 0 ? " - " : " + ";
    text += monomial_text(at->first, magnitude(at->second));
  }
  return text;
}

std::string SizeImpl::floor_text(const Size& a, const Size& b) {
  auto bare = [](const Size& size, bool right) {
    const SizeRep* r = rep(size);
    if (r == nullptr) return plain(size) >= 0;
    if (!is_one(r->den)) return false;
    return right ? single_factor(r->num) : single_term(r->num);
  };
  return bracketed(a.str(), bare(a, false)) + "//" + bracketed(b.str(), bare(b, true));
}

std::string Size::str() const {
  if (!rep_) return fmt::format("{}", constant_);
  if (rep_->overflow) return "<overflow>";
  if (rep_->zero_division) return "<division by 0>";
  std::string num = SizeImpl::poly_text(rep_->num);
  if (SizeImpl::is_one(rep_->den)) return num;
  return bracketed(num, single_term(rep_->num)) + "/" +
         bracketed(SizeImpl::poly_text(rep_->den), single_factor(rep_->den));
}

Result<Size> Size::parse(const std::string& text) {
  Reader reader{{text}};
  Size size = reader.sum();
  reader.blanks();
  if (!reader.failed && reader.at == text.size()) return size;
  return make_error(
      DiagId::E0001,
      fmt::format("`{}` is not a size: cannot read it from column {} on", text, reader.at + 1),
      kExitProgram);
}

}  // namespace cad::ir
