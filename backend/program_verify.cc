// backend/program_verify.cc -- see backend/program_verify.h.
#include "backend/program_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/program_impl.h"
#include "ir/collective.h"
#include "ir/interpreter.h"
#include "ir/shard.h"

namespace cad::backend {

namespace {

using Kind = Instruction::Kind;

// A buffer of a block (block >= 0), else an input or output.
struct Place {
  int32_t block = -1, buffer = -1;
  bool operator<(const Place& o) const {
    return std::pair(block, buffer) < std::pair(o.block, o.buffer);
  }
  bool operator==(const Place&) const = default;
};

class Verifier {
 public:
  explicit Verifier(const ProgramImpl& p) : p_(p) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      written_.insert({-1, static_cast<int32_t>(1 + i)});
    written_.insert({-1, static_cast<int32_t>(1 + p_.inputs.size() + p_.outputs.size())});
    for (const Block& b : p_.blocks) overlaps(b);
    block(0);
    for (const CollectivePlan& plan : p_.collectives) collective(plan);
    return std::move(problems_);
  }

 private:
  template <class... T>
  void wrong(fmt::format_string<T...> text, T&&... args) {
    problems_.push_back(fmt::format(text, std::forward<T>(args)...));
  }
  [[nodiscard]] std::string name(const Instruction& i) const {
    const StepInfo& info = p_.infos[static_cast<size_t>(i.info)];
    return fmt::format("`{}`{}", info.name, info.scope.empty() ? "" : " of " + info.scope);
  }

  // An output that lies in its input's memory is there.
  [[nodiscard]] Place place_of(const Address& a) const {
    if (a.root == Address::kArena) return {a.block, a.buffer};
    const auto output = static_cast<size_t>(a.root) - 1 - p_.inputs.size();
    const bool shares = output < p_.in_place.size() && p_.in_place[output] >= 0;
    return {-1, shares ? 1 + p_.in_place[output] : a.root};
  }

  // Buffers of one block that live together.
  void overlaps(const Block& b) {
    for (size_t i = 0; i < b.buffers.size(); ++i) {
      const ArenaBuffer& x = b.buffers[i];
      if (x.offset < 0 || x.offset + x.bytes > b.bytes)
        wrong("buffer `{}` lies outside of its block", x.name);
      for (size_t j = 0; j < i; ++j) {
        const ArenaBuffer& y = b.buffers[j];
        if (x.last < y.first || y.last < x.first || x.bytes == 0 || y.bytes == 0) continue;
        if (x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes)
          wrong("buffers `{}` and `{}` overlap while both live", x.name, y.name);
      }
    }
  }

  // `step` of the block that owns the buffer: the loop around the instruction, for an outer one.
  void used(const Instruction& i, const Address& a) {
    if (a.root != Address::kArena || a.buffer < 0) return;
    const Block& owner = p_.blocks[static_cast<size_t>(a.block)];
    const ArenaBuffer& buffer = owner.buffers[static_cast<size_t>(a.buffer)];
    const int64_t begin = owner.base + buffer.offset;
    if (a.offset < begin || (a.offset >= begin + buffer.bytes && buffer.bytes > 0))
      wrong("{} leaves buffer `{}`", name(i), buffer.name);
    const auto at = at_.find(a.block);
    if (at == at_.end()) {
      wrong("{} uses buffer `{}` of a block that does not surround it", name(i), buffer.name);
    } else if (at->second < buffer.first || at->second > buffer.last) {
      wrong("{} uses buffer `{}` at step {}, it lives from {} to {}", name(i), buffer.name,
            at->second, buffer.first, buffer.last);
    }
  }

  void touch(const Instruction& i, size_t operand) {
    const Address& a = i.operands[operand];
    if (!a.valid()) return;
    used(i, a);
    const Place place = place_of(a);
    const bool writes = i.writes[operand] != 0;
    if (writes) {
      written_.insert(place);
    } else if (written_.count(place) == 0) {
      wrong("{} reads its operand {}, which nothing has written", name(i), operand);
    }
    for (const auto& [ticket, call] : flying_) {
      const bool in = place == place_of(call->operands[0]),
                 out = place == place_of(call->operands[1]);
      if (out || (in && writes))
        wrong("{} {} what {} still works on", name(i), writes ? "writes" : "reads", name(*call));
    }
  }

  void block(int32_t index) {
    const std::set<int32_t> outer = std::move(open_);
    open_.clear();
    for (const Instruction& i : p_.blocks[static_cast<size_t>(index)].instructions) {
      at_[index] = i.step;
      if (i.kind == Kind::kAwait) {
        if (flying_.erase(i.ticket) == 0 || open_.erase(i.ticket) == 0)
          wrong("ticket {} is awaited and was not started in its block", i.ticket);
        continue;
      }
      if (i.kind == Kind::kLoop) {
        at_[i.block] = 0;  // the number is the body's
        used(i, i.number);
        written_.insert(place_of(i.number));
        block(i.block);
        at_[index] = i.step;
        continue;
      }
      for (size_t o = 0; o < i.operands.size(); ++o)  // reads first: a step may work in place
        if (i.writes[o] == 0) touch(i, o);
      for (size_t o = 0; o < i.operands.size(); ++o)
        if (i.writes[o] != 0) touch(i, o);
      if (i.scratch.valid()) used(i, i.scratch);
      if (i.kind != Kind::kCollective) continue;
      if (!flying_.emplace(i.ticket, &i).second) wrong("ticket {} is started twice", i.ticket);
      open_.insert(i.ticket);
    }
    for (const int32_t ticket : open_) {
      wrong("ticket {} is not awaited in its block", ticket);
      flying_.erase(ticket);
    }
    open_ = outer;
    at_.erase(index);
  }

  [[nodiscard]] int64_t elements(ir::ValueId v) const {
    int64_t n = 1;
    for (const int64_t e : ir::extents_of(p_.graph, p_.graph.type(v), p_.bindings)) n *= e;
    return n;
  }

  void collective(const CollectivePlan& plan) {
    const ir::Graph& g = p_.graph;
    const ir::Node& node = g.node(plan.node);
    const int64_t n = ir::mesh_size(g, plan.axes);
    if (plan.call.size() != n)
      wrong("{} has {} members on axes of {} devices", plan.call.str(), plan.call.size(), n);
    if (plan.call.in_elements() != elements(node.operands[0]) ||
        plan.call.out_elements() != elements(node.results[0])) {
      wrong("{} moves {} to {} elements, its node {} to {}", plan.call.str(),
            plan.call.in_elements(), plan.call.out_elements(), elements(node.operands[0]),
            elements(node.results[0]));
    }
    if (plan.axes != node.attrs.axes) wrong("{} is on other axes than its node", plan.call.str());
    if (plan.call.members != first_group(plan))
      wrong("{} has other members than the first device's group", plan.call.str());
  }

  // Groups depend on the axes only: those of each set of axes are checked once, however many
  // collectives there are.
  const std::vector<int>& first_group(const CollectivePlan& plan) {
    const auto [at, is_new] = first_groups_.try_emplace(plan.axes);
    if (!is_new) return at->second;
    const ir::Graph& g = p_.graph;
    int64_t devices = 1;
    for (const ir::MeshAxis& axis : g.mesh) devices *= axis.size;
    const GroupOf of = [&](int64_t device) {
      return group_of(g, plan.axes, ir::coordinates_of(g, device));
    };
    for (const std::string& problem : group_problems(devices, of))
      wrong("{}: {}", plan.call.str(), problem);
    return at->second = of(0);
  }

  const ProgramImpl& p_;
  std::vector<std::string> problems_;
  std::map<int32_t, int32_t> at_;  // step of each block that is being walked
  std::set<Place> written_;
  std::map<int32_t, const Instruction*> flying_;
  std::set<int32_t> open_;                             // tickets started in the block at hand
  std::map<uint32_t, std::vector<int>> first_groups_;  // by axes whose groups are checked
};

void sequence(const ProgramImpl& p, int32_t block, int depth, std::string& out) {
  for (const Instruction& i : p.blocks[static_cast<size_t>(block)].instructions) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    if (i.kind == Kind::kCollective) {
      const CollectiveCall& call = p.collectives[static_cast<size_t>(i.detail)].call;
      out +=
          fmt::format("{}{}{}\n", indent, call.str(), call.label.empty() ? "" : ": " + call.label);
    } else if (i.kind == Kind::kLoop) {
      std::string body;
      sequence(p, i.block, depth + 1, body);
      if (!body.empty()) out += fmt::format("{}{} times\n{}", indent, i.count, body);
    }
  }
}

}  // namespace

std::vector<std::string> group_problems(int64_t devices, const GroupOf& group_of) {
  constexpr size_t kAsked = 8;  // at each end of a group
  std::vector<std::string> problems;
  std::vector<bool> seen(static_cast<size_t>(devices), false);
  for (int64_t d = 0; d < devices; ++d) {
    if (seen[static_cast<size_t>(d)]) continue;
    const std::vector<int> group = group_of(d);
    if (std::find(group.begin(), group.end(), static_cast<int>(d)) == group.end())
      problems.push_back(fmt::format("device {} is not in its own group", d));
    for (size_t i = 0; i < group.size(); ++i) {
      const int m = group[i];
      if (m < 0 || m >= devices) {
        problems.push_back(fmt::format("the group of device {} has a device {}", d, m));
        continue;
      }
      const bool asked = i < kAsked || i + kAsked >= group.size();
      const bool twice = seen[static_cast<size_t>(m)];
      seen[static_cast<size_t>(m)] = true;
      if (twice || (asked && group_of(m) != group))
        problems.push_back(fmt::format("devices {} and {} see other groups", d, m));
    }
  }
  return problems;
}

std::vector<std::string> verify(const Program& program) {
  return Verifier(program.impl()).run();
}

std::string collective_sequence(const Program& program) {
  std::string out;
  for (const ir::MeshAxis& axis : program.impl().graph.mesh)
    out += fmt::format("axis {} of {}\n", axis.name, axis.size);
  sequence(program.impl(), 0, 0, out);
  return out;
}

}  // namespace cad::backend
