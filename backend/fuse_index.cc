// backend/fuse_index.cc -- arithmetic of affine indices. See backend/fuse.h.
#include <algorithm>

#include "backend/fuse.h"

namespace cad::backend::fuse {

void Affine::add(const Affine& other, int64_t times) {
  constant += other.constant * times;
  if (coefs.size() < other.coefs.size()) coefs.resize(other.coefs.size(), 0);
  for (size_t l = 0; l < other.coefs.size(); ++l) coefs[l] += other.coefs[l] * times;
}

bool Affine::is_constant() const {
  return std::all_of(coefs.begin(), coefs.end(), [](int64_t c) { return c == 0; });
}

bool Affine::operator==(const Affine& other) const {
  if (constant != other.constant) return false;
  for (size_t l = 0; l < std::max(coefs.size(), other.coefs.size()); ++l)
    if (coef(l) != other.coef(l)) return false;
  return true;
}

void Index::add(const Index& other, int64_t times) {
  affine.add(other.affine, times);
  if (times == 0) return;
  for (const auto& [expr, factor] : other.dynamic) {
    auto same = std::find_if(dynamic.begin(), dynamic.end(),
                             [e = expr](const auto& term) { return term.first == e; });
    if (same == dynamic.end())
      dynamic.emplace_back(expr, factor * times);
    else
      same->second += factor * times;
  }
}

bool LoopProgram::has_inner() const {
  return std::any_of(loops.begin(), loops.end(), [](const Loop& l) { return l.inner; });
}

uint64_t LoopProgram::inner_mask() const {
  uint64_t mask = 0;
  for (size_t l = 0; l < loops.size(); ++l)
    if (loops[l].inner) mask |= uint64_t{1} << l;
  return mask;
}

int64_t RegionContext::elements(const ir::Type& t) const {
  int64_t n = 1;
  for (ir::DimId d : t.dims) n *= extent(d);
  return n;
}

}  // namespace cad::backend::fuse
