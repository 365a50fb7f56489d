// backend/program.cc -- the public face of ProgramImpl, and its text.
#include "backend/program.h"

#include <fmt/format.h>

#include "backend/program_impl.h"

namespace cad::backend {

Program::Program() = default;
Program::Program(std::shared_ptr<const ProgramImpl> impl) : impl_(std::move(impl)) {}

const std::vector<Port>& Program::inputs() const {
  return impl_->inputs;
}
const std::vector<Port>& Program::outputs() const {
  return impl_->outputs;
}
int64_t Program::transient_bytes() const {
  return impl_->transient_bytes;
}
const std::vector<TransientBuffer>& Program::buffers() const {
  return impl_->buffers;
}
const std::vector<StepInfo>& Program::steps() const {
  return impl_->infos;
}

namespace {

int find(const std::vector<Port>& ports, const std::string& name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string address_text(const ProgramImpl& p, const Address& a) {
  if (!a.valid()) return "-";
  std::string text;
  const auto root = static_cast<size_t>(a.root);
  if (a.root == Address::kArena) {
    text = "arena";
  } else if (root <= p.inputs.size()) {
    text = "`" + p.inputs[root - 1].name + "`";
  } else if (root <= p.inputs.size() + p.outputs.size()) {
    text = "`" + p.outputs[root - 1 - p.inputs.size()].name + "`";
  } else {
    text = "axis_index" + std::to_string(a.offset / 4);
    return text;
  }
  if (a.offset != 0 || a.root == Address::kArena) text += fmt::format("+{}", a.offset);
  for (const auto& [level, stride] : a.numbers) text += fmt::format("+i{}*{}", level, stride);
  return text;
}

void block_text(const ProgramImpl& p, int32_t block, int indent, std::string& out) {
  for (const Instruction& i : p.blocks[static_cast<size_t>(block)].instructions) {
    const StepInfo& info = p.infos[static_cast<size_t>(i.info)];
    out += std::string(static_cast<size_t>(indent), ' ');
    if (i.kind == Instruction::Kind::kLoop) {
      out += fmt::format("loop i{} of {}{}\n", i.level, i.count, i.reverse ? ", reversed" : "");
      block_text(p, i.block, indent + 2, out);
      continue;
    }
    if (i.kind == Instruction::Kind::kAwait) {
      out += fmt::format("await {}\n", i.ticket);
      continue;
    }
    if (i.kind == Instruction::Kind::kCollective) {
      const CollectivePlan& plan = p.collectives[static_cast<size_t>(i.detail)];
      out += fmt::format("start {}: {}{}", i.ticket, plan.call.str(),
                         i.joins ? ", with the next" : "");
    } else {
      out += i.kind == Instruction::Kind::kCopy ? "copy" : info.name;
    }
    if (i.adds != Adds::kNo) out += " (adds)";
    for (const Address& a : i.operands) out += " " + address_text(p, a);
    if (i.scratch.valid()) out += " scratch " + address_text(p, i.scratch);
    if (!info.scope.empty()) out += "  # " + info.scope;
    out += "\n";
  }
}

}  // namespace

int Program::input(const std::string& path) const {
  return find(impl_->inputs, path);
}
int Program::output(const std::string& name) const {
  return find(impl_->outputs, name);
}

std::string Program::str() const {
  std::string out = fmt::format("arena {} bytes\n", impl_->transient_bytes);
  block_text(*impl_, 0, 0, out);
  return out;
}

}  // namespace cad::backend
