// ir/size.cc -- the arithmetic of Size: polynomials as sorted maps, the canonical form, evaluation.
// Text (str, parse) is in size_text.cc; the representation both share is in size_rep.h.
//
// There is no polynomial gcd: integer and monomial content are cancelled and exact division is
// tried both ways. Equality does not need more, since it cross-multiplies.
#include "ir/size.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/size_rep.h"  // defines: Atom, Monomial, Poly, SizeRep, SizeImpl

namespace cad::ir {

namespace {

int compare(const Atom& a, const Atom& b) {
  if (&a == &b) return 0;
  if (a.is_floor() != b.is_floor()) return a.is_floor() ? 1 : -1;
  return a.key.compare(b.key);
}

int degree(const Monomial& m) {
  int sum = 0;
  for (const AtomPower& factor : m) sum += factor.power;
  return sum;
}

// Coefficient arithmetic that notes when 64 bits overflow.
struct Checked {
  bool overflow = false;
  int64_t add(int64_t a, int64_t b) {
    int64_t r = 0;
    overflow |= __builtin_add_overflow(a, b, &r);
    return r;
  }
  int64_t mul(int64_t a, int64_t b) {
    int64_t r = 0;
    overflow |= __builtin_mul_overflow(a, b, &r);
    return r;
  }

  void accumulate(Poly& to, const Monomial& m, int64_t c) {
    auto [at, fresh] = to.try_emplace(m, c);
    if (!fresh) at->second = add(at->second, c);
    if (at->second == 0) to.erase(at);
  }
  Poly add(const Poly& a, const Poly& b, int64_t sign) {
    Poly r = a;
    for (const auto& [m, c] : b) accumulate(r, m, mul(c, sign));
    return r;
  }
  Poly mul(const Poly& a, const Poly& b) {
    if (SizeImpl::is_one(a)) return b;
    if (SizeImpl::is_one(b)) return a;
    Poly r;
    for (const auto& [ma, ca] : a) {
      for (const auto& [mb, cb] : b) accumulate(r, SizeImpl::multiply(ma, mb), mul(ca, cb));
    }
    return r;
  }
};

// a / b as monomials, if every power suffices.
std::optional<Monomial> divide(const Monomial& a, const Monomial& b) {
  Monomial r;
  size_t at = 0;
  for (const AtomPower& factor : a) {
    AtomPower left = factor;
    if (at < b.size() && compare(*b[at].atom, *factor.atom) == 0) left.power -= b[at++].power;
    if (left.power < 0) return std::nullopt;
    if (left.power > 0) r.push_back(left);
  }
  if (at < b.size()) return std::nullopt;
  return r;
}

// Multivariate long division by leading terms; nullopt when a remainder is left.
std::optional<Poly> divide(Poly a, const Poly& b) {
  Poly quotient;
  Checked checked;
  const auto& [lead, coefficient] = *b.begin();
  while (!a.empty()) {
    const auto& [m, c] = *a.begin();
    if (c % coefficient != 0) return std::nullopt;
    auto step = divide(m, lead);
    if (!step) return std::nullopt;
    const int64_t factor = c / coefficient;
    checked.accumulate(quotient, *step, factor);
    a = checked.add(a, checked.mul(Poly{{*step, factor}}, b), -1);
    if (checked.overflow) return std::nullopt;
  }
  return quotient;
}

Monomial common(const Monomial& a, const Monomial& b) {
  Monomial r;
  for (const AtomPower& fa : a) {
    for (const AtomPower& fb : b) {
      if (compare(*fa.atom, *fb.atom) == 0) r.push_back({fa.atom, std::min(fa.power, fb.power)});
    }
  }
  return r;
}

// Divides both by their common integer and monomial content; den's leading coefficient ends > 0.
void cancel_content(Poly& num, Poly& den) {
  uint64_t content = 0;
  Monomial shared = num.begin()->first;
  auto magnitude = [](int64_t c) {
    return c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
  };
  for (const Poly* poly : {&num, &den}) {
    for (const auto& [m, c] : *poly) {
      content = std::gcd(content, magnitude(c));
      shared = common(shared, m);
    }
  }
  if (content > static_cast<uint64_t>(INT64_MAX)) content = 1;
  auto divisor = static_cast<int64_t>(content);
  if (den.begin()->second < 0) divisor = -divisor;
  if (divisor == 1 && shared.empty()) return;
  for (Poly* poly : {&num, &den}) {
    Poly reduced;
    for (const auto& [m, c] : *poly) reduced.emplace(*divide(m, shared), c / divisor);
    *poly = std::move(reduced);
  }
}

const Poly& one() {
  static const Poly poly{{Monomial{}, 1}};
  return poly;
}

struct Parts {
  Poly num, den;
  bool overflow = false, zero_division = false;
};
Parts parts_of(const Size& size) {
  const SizeRep* rep = SizeImpl::rep(size);
  if (rep != nullptr) return {rep->num, rep->den, rep->overflow, rep->zero_division};
  Parts parts;
  parts.den = one();
  if (int64_t c = SizeImpl::plain(size); c != 0) parts.num.emplace(Monomial{}, c);
  return parts;
}

Size make(Parts parts) {
  // The least integer has no negative: it counts as overflow, so that divisions below are safe.
  for (const Poly* poly : {&parts.num, &parts.den}) {
    for (const auto& [m, c] : *poly) parts.overflow |= c == INT64_MIN;
  }
  if (parts.overflow || parts.zero_division || parts.den.empty()) {
    SizeRep broken;
    broken.den = one();
    broken.overflow = parts.overflow;
    broken.zero_division = !parts.overflow;
    return SizeImpl::wrap(std::move(broken));
  }
  if (parts.num.empty()) return 0;
  if (!SizeImpl::is_one(parts.den)) {
    cancel_content(parts.num, parts.den);
    if (!SizeImpl::is_one(parts.den)) {
      if (auto whole = divide(parts.num, parts.den)) {
        parts.num = std::move(*whole);
        parts.den = one();
      } else if (auto inverse = divide(parts.den, parts.num)) {
        parts.den = std::move(*inverse);
        parts.num = one();
        cancel_content(parts.num, parts.den);
      }
    }
  }
  if (SizeImpl::is_one(parts.den) && parts.num.size() == 1 && parts.num.begin()->first.empty()) {
    return parts.num.begin()->second;
  }
  SizeRep rep;
  rep.num = std::move(parts.num);
  rep.den = std::move(parts.den);
  return SizeImpl::wrap(std::move(rep));
}

int64_t floor_divide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

void collect_symbols(const Size& size, std::set<std::string>& into) {
  const SizeRep* rep = SizeImpl::rep(size);
  if (rep == nullptr) return;
  for (const Poly* poly : {&rep->num, &rep->den}) {
    for (const auto& [m, c] : *poly) {
      for (const AtomPower& factor : m) {
        if (factor.atom->is_floor()) {
          collect_symbols(factor.atom->a, into);
          collect_symbols(factor.atom->b, into);
        } else {
          into.insert(factor.atom->key);
        }
      }
    }
  }
}

}  // namespace

bool MonomialOrder::operator()(const Monomial& a, const Monomial& b) const {
  const int da = degree(a), db = degree(b);
  if (da != db) return da > db;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (int order = compare(*a[i].atom, *b[i].atom); order != 0) return order < 0;
    if (a[i].power != b[i].power) return a[i].power > b[i].power;
  }
  return false;  // equal degree and a common prefix: equal
}

const SizeRep* SizeImpl::rep(const Size& size) {
  return size.rep_.get();
}
int64_t SizeImpl::plain(const Size& size) {
  return size.constant_;
}
Size SizeImpl::wrap(SizeRep rep) {
  Size size;
  size.rep_ = std::make_shared<const SizeRep>(std::move(rep));
  return size;
}
bool SizeImpl::is_one(const Poly& poly) {
  return poly.size() == 1 && poly.begin()->first.empty() && poly.begin()->second == 1;
}
Monomial SizeImpl::multiply(const Monomial& a, const Monomial& b) {
  Monomial r;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    int order = i == a.size() ? 1 : j == b.size() ? -1 : compare(*a[i].atom, *b[j].atom);
    if (order == 0) {
      r.push_back({a[i].atom, a[i].power + b[j].power});
      ++i, ++j;
    } else {
      r.push_back(order < 0 ? a[i++] : b[j++]);
    }
  }
  return r;
}

Size Size::symbol(const std::string& name) {
  auto atom = std::make_shared<Atom>();
  atom->key = name;
  SizeRep rep;
  rep.num.emplace(Monomial{{std::move(atom), 1}}, 1);
  rep.den = one();
  return SizeImpl::wrap(std::move(rep));
}

// floor(a/b) depends on the quotient alone, so it is formed first. With a constant divisor the
// terms that it divides leave the floor, and the constant's whole part: (Y - 1)//2 + 1 and
// (Y + 1)//2 become the same expression.
Size Size::floor_div(const Size& a, const Size& b) {
  if (b == Size(1)) return a;
  Parts q = parts_of(a / b);
  if (q.overflow || q.zero_division || SizeImpl::is_one(q.den)) return a / b;
  Size whole = 0;
  if (q.den.size() == 1 && q.den.begin()->first.empty()) {
    const int64_t d = q.den.begin()->second;
    Parts out;
    out.den = one();
    for (auto at = q.num.begin(); at != q.num.end();) {
      const bool constant = at->first.empty();
      if (at->second % d != 0 && !constant) {
        ++at;
        continue;
      }
      const int64_t quotient = floor_divide(at->second, d);
      if (quotient != 0) out.num.emplace(at->first, quotient);
      at->second -= quotient * d;
      at = at->second == 0 ? q.num.erase(at) : std::next(at);
    }
    whole = make(std::move(out));
    if (q.num.empty() || (q.num.size() == 1 && q.num.begin()->first.empty())) return whole;
  }
  auto atom = std::make_shared<Atom>();
  Parts num, den;
  num.num = std::move(q.num);
  num.den = one();
  den.num = std::move(q.den);
  den.den = one();
  atom->a = make(std::move(num));
  atom->b = make(std::move(den));
  // floor(floor(x/y)/b) = floor(x/(y*b)): pooling twice by 2 is once by 4.
  if (const SizeRep* inner = SizeImpl::rep(atom->a);
      inner != nullptr && inner->num.size() == 1 && inner->num.begin()->second == 1) {
    const Monomial& m = inner->num.begin()->first;
    if (m.size() == 1 && m[0].power == 1 && m[0].atom->is_floor()) {
      return whole + floor_div(m[0].atom->a, m[0].atom->b * atom->b);
    }
  }
  atom->key = SizeImpl::floor_text(atom->a, atom->b);
  SizeRep rep;
  rep.num.emplace(Monomial{{std::move(atom), 1}}, 1);
  rep.den = one();
  return whole + SizeImpl::wrap(std::move(rep));
}

namespace {

Size add(const Size& a, const Size& b, int64_t sign) {
  Parts x = parts_of(a), y = parts_of(b), r;
  Checked checked;
  if (x.den == y.den) {
    r.num = checked.add(x.num, y.num, sign);
    r.den = std::move(x.den);
  } else {
    r.num = checked.add(checked.mul(x.num, y.den), checked.mul(y.num, x.den), sign);
    r.den = checked.mul(x.den, y.den);
  }
  r.overflow = checked.overflow || x.overflow || y.overflow;
  r.zero_division = x.zero_division || y.zero_division;
  return make(std::move(r));
}

Size multiply(const Parts& x, const Parts& y) {
  Parts r;
  Checked checked;
  r.num = checked.mul(x.num, y.num);
  r.den = checked.mul(x.den, y.den);
  r.overflow = checked.overflow || x.overflow || y.overflow;
  r.zero_division = x.zero_division || y.zero_division;
  return make(std::move(r));
}

}  // namespace

Size operator+(const Size& a, const Size& b) {
  if (!a.rep_ && a.constant_ == 0) return b;
  if (!b.rep_ && b.constant_ == 0) return a;
  return add(a, b, 1);
}

Size operator-(const Size& a, const Size& b) {
  if (!b.rep_ && b.constant_ == 0) return a;
  return add(a, b, -1);
}

Size operator*(const Size& a, const Size& b) {
  if (!a.rep_ && a.constant_ == 1) return b;
  if (!b.rep_ && b.constant_ == 1) return a;
  return multiply(parts_of(a), parts_of(b));
}

Size operator/(const Size& a, const Size& b) {
  if (!b.rep_ && b.constant_ == 1) return a;
  Parts inverse = parts_of(b);
  std::swap(inverse.num, inverse.den);  // an empty den marks division by zero
  return multiply(parts_of(a), inverse);
}

bool operator==(const Size& a, const Size& b) {
  if (!a.rep_ && !b.rep_) return a.constant_ == b.constant_;
  if (a.rep_ == b.rep_) return true;
  if (!a.rep_ || !b.rep_) {
    // A canonical non-constant may still be a constant fraction's multiple only if it reduces,
    // which make() would have done.
    return false;
  }
  if (a.rep_->overflow || b.rep_->overflow || a.rep_->zero_division || b.rep_->zero_division) {
    return a.rep_->overflow == b.rep_->overflow && a.rep_->zero_division && b.rep_->zero_division;
  }
  if (a.rep_->den == b.rep_->den) return a.rep_->num == b.rep_->num;
  Checked checked;
  return checked.mul(a.rep_->num, b.rep_->den) == checked.mul(b.rep_->num, a.rep_->den) &&
         !checked.overflow;
}

bool Size::is_constant() const {
  return !rep_;
}
std::optional<int64_t> Size::constant() const {
  if (rep_) return std::nullopt;
  return constant_;
}
bool Size::is_polynomial() const {
  return !rep_ || SizeImpl::is_one(rep_->den);
}

std::vector<std::string> Size::symbols() const {
  std::set<std::string> names;
  collect_symbols(*this, names);
  return {names.begin(), names.end()};
}

Size Size::substitute(const std::map<std::string, Size>& by) const {
  if (!rep_ || by.empty()) return *this;
  auto replaced = [&](const Poly& poly) {
    Size sum = 0;
    for (const auto& [m, c] : poly) {
      Size term = c;
      for (const AtomPower& factor : m) {
        const Atom& atom = *factor.atom;
        Size base;
        if (atom.is_floor()) {
          base = floor_div(atom.a.substitute(by), atom.b.substitute(by));
        } else {
          auto found = by.find(atom.key);
          base = found != by.end() ? found->second : symbol(atom.key);
        }
        for (int i = 0; i < factor.power; ++i) term = term * base;
      }
      sum = sum + term;
    }
    return sum;
  };
  if (rep_->overflow || rep_->zero_division) return *this;
  return replaced(rep_->num) / replaced(rep_->den);
}

namespace {

using Evaluated = Size::Evaluated;
using EvalError = Size::EvalError;

Evaluated failure(EvalError error, std::string detail) {
  return {0, error, std::move(detail)};
}

Evaluated evaluate_poly(const Poly& poly, const Bindings& bindings) {
  Checked checked;
  int64_t sum = 0;
  for (const auto& [m, c] : poly) {
    int64_t term = c;
    for (const AtomPower& factor : m) {
      Evaluated base;
      if (factor.atom->is_floor()) {
        Evaluated a = factor.atom->a.evaluate(bindings), b = factor.atom->b.evaluate(bindings);
        for (const Evaluated* part : {&a, &b}) {
          if (part->error && *part->error != EvalError::kNegative) return *part;
        }
        if (b.value == 0) return failure(EvalError::kZeroDivision, fmt::format("{} // 0", a.value));
        if (a.value == INT64_MIN) return failure(EvalError::kOverflow, factor.atom->key);
        base.value = floor_divide(a.value, b.value);
      } else {
        auto found = bindings.find(factor.atom->key);
        if (found == bindings.end()) return failure(EvalError::kFree, factor.atom->key);
        base.value = found->second;
      }
      for (int i = 0; i < factor.power; ++i) term = checked.mul(term, base.value);
    }
    sum = checked.add(sum, term);
  }
  if (checked.overflow || sum == INT64_MIN)
    return failure(EvalError::kOverflow, SizeImpl::poly_text(poly));
  return {sum, std::nullopt, ""};
}

std::optional<double> real_poly(const Poly& poly, const Bindings& bindings) {
  double sum = 0;
  for (const auto& [m, c] : poly) {
    auto term = static_cast<double>(c);
    for (const AtomPower& factor : m) {
      double base = 0;
      if (factor.atom->is_floor()) {
        auto a = factor.atom->a.evaluate_real(bindings), b = factor.atom->b.evaluate_real(bindings);
        if (!a || !b) return std::nullopt;
        base = std::floor(*a / *b);
      } else {
        auto found = bindings.find(factor.atom->key);
        if (found == bindings.end()) return std::nullopt;
        base = static_cast<double>(found->second);
      }
      for (int i = 0; i < factor.power; ++i) term *= base;
    }
    sum += term;
  }
  return sum;
}

}  // namespace

Size::Evaluated Size::evaluate(const Bindings& bindings) const {
  auto finish = [&](int64_t value) -> Evaluated {
    if (value >= 0) return {value, std::nullopt, ""};
    return {value, EvalError::kNegative, fmt::format("{}", value)};
  };
  if (!rep_) return finish(constant_);
  if (rep_->overflow) return failure(EvalError::kOverflow, "a coefficient");
  if (rep_->zero_division) return failure(EvalError::kZeroDivision, "a division by 0");
  Evaluated num = evaluate_poly(rep_->num, bindings);
  if (num.error) return num;
  if (SizeImpl::is_one(rep_->den)) return finish(num.value);
  Evaluated den = evaluate_poly(rep_->den, bindings);
  if (den.error) return den;
  std::string division = fmt::format("{} / {}", num.value, den.value);
  if (den.value == 0) return failure(EvalError::kZeroDivision, std::move(division));
  if (num.value % den.value != 0) return failure(EvalError::kInexact, std::move(division));
  return finish(num.value / den.value);
}

std::optional<double> Size::evaluate_real(const Bindings& bindings) const {
  if (!rep_) return static_cast<double>(constant_);
  if (rep_->overflow || rep_->zero_division) return std::nullopt;
  auto num = real_poly(rep_->num, bindings), den = real_poly(rep_->den, bindings);
  if (!num || !den) return std::nullopt;
  return *num / *den;
}

}  // namespace cad::ir
