// ir/ops.cc -- the registry's table: an OpInfo for every row of ops.def. The infos are defined in
// the family files op_<family>.cc; a row without one does not link.
#include "base/check.h"
#include "ir/op_rules.h"  // declares: kAddInfo, kSubInfo, ..

namespace cad::ir {

namespace {

struct Row {
  const char* name;
  const char* family;
  const OpInfo* info;
};

const Row kRows[] = {
#define CAD_OP(enumerator, text, family) {text, #family, &enumerator##Info},
#include "ir/ops.def"
#undef CAD_OP
};

const Row& row(Op op) {
  const auto index = static_cast<size_t>(op);
  CAD_CHECK(index < std::size(kRows), "no op {}", index);
  return kRows[index];
}

}  // namespace

const char* op_name(Op op) {
  return row(op).name;
}
const char* op_family(Op op) {
  return row(op).family;
}
const OpInfo& op_info(Op op) {
  return *row(op).info;
}

}  // namespace cad::ir
