// ir/size_rep.h -- the representation behind Size, shared by size.cc (arithmetic) and size_text.cc
// (printing and parsing). Nobody else includes it.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "ir/size.h"

namespace cad::ir {

// A symbol (key: its name) or floor(a / b) (key: its text). Ordered by key, symbols first.
struct Atom {
  std::string key;
  Size a, b;  // floors only; b is never 0, which marks symbols
  [[nodiscard]] bool is_floor() const { return !b.is_constant() || *b.constant() != 0; }
};
struct AtomPower {
  std::shared_ptr<const Atom> atom;
  int power = 1;
  friend bool operator==(const AtomPower& x, const AtomPower& y) {
    return x.power == y.power && (x.atom == y.atom || (x.atom->key == y.atom->key &&
                                                       x.atom->is_floor() == y.atom->is_floor()));
  }
};
using Monomial = std::vector<AtomPower>;  // sorted by atom

// Graded order, highest degree first: the leading term is the first, a constant the last.
struct MonomialOrder {
  bool operator()(const Monomial& a, const Monomial& b) const;
};
using Poly = std::map<Monomial, int64_t, MonomialOrder>;  // no zero coefficients

struct SizeRep {
  Poly num, den;
  bool overflow = false;       // a coefficient left 64 bits
  bool zero_division = false;  // divided by the constant 0
};

struct SizeImpl {
  static const SizeRep* rep(const Size& size);
  static int64_t plain(const Size& size);
  static Size wrap(SizeRep rep);
  static bool is_one(const Poly& poly);
  static Monomial multiply(const Monomial& a, const Monomial& b);
  static std::string poly_text(const Poly& poly);
  static std::string floor_text(const Size& a, const Size& b);
};

}  // namespace cad::ir
