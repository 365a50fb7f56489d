// frontend/section_keys.cc -- keys of all sections against their tables; devices, clusters, meshes
// and plans into the structs of machine.h. Train sections: section_train.cc.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "frontend/resolve.h"
#include "frontend/section_checker.h"
#include "frontend/settings.h"

namespace cad::frontend {

namespace {

Span head_span(const Section& section) {
  Span span = section.kind.span;
  if (!section.name.empty()) span.end = section.name.span.end;
  return span;
}

}  // namespace

void SectionChecker::run() {
  const Ast& ast = module_.main().ast;
  std::map<std::string, Span> seen;
  const Section* chosen = chosen_train(module_);
  for (const Item& item : ast.items) {
    if (item.kind != ItemKind::kSection) continue;
    const Section& s = section(item.section);
    if (s.broken && find_table(s.kind.text) == nullptr) continue;  // most likely no section at all
    const SectionTable* table = top_table(s);
    if (table == nullptr) continue;
    const std::string key = s.kind.text + " " + s.name.text;
    if (auto [at, fresh] = seen.emplace(key, head_span(s)); !fresh) {
      read_
          .report(DiagId::E0302, head_span(s),
                  fmt::format("a second section `{}`", s.name.empty() ? s.kind.text : key))
          .label(at->second, "the first one");
      continue;
    }
    if (s.broken) continue;
    if (s.kind.text == "train") {
      if (&s == chosen) data_.chosen = static_cast<int>(data_.trains.size());
      read_train(s);
    } else if (s.kind.text == "device") {
      read_device(s);
    } else if (s.kind.text == "cluster") {
      read_cluster(s);
    } else if (s.kind.text == "mesh") {
      read_mesh(s);
    } else {
      read_plan(s);
    }
  }
  check_names_of_machines();
}

const SectionTable* SectionChecker::top_table(const Section& s) {
  const SectionTable* table = find_table(s.kind.text);
  if (table != nullptr && table->top) return table;
  std::vector<std::string> names;
  for (const SectionTable& t : section_tables()) {
    if (t.top) names.emplace_back(t.kind);
  }
  Diagnostic& d = read_.report(DiagId::E0307, s.kind.span,
                               fmt::format("there is no section `{}`", s.kind.text));
  if (table != nullptr) {
    for (const SectionTable& outer : section_tables()) {
      if (std::count(outer.nested.begin(), outer.nested.end(), s.kind.text) != 0) {
        d.help(fmt::format("`{}` stands inside of `{}`", s.kind.text, outer.kind));
      }
    }
  } else if (auto near = suggest(s.kind.text, names)) {
    d.help(fmt::format("did you mean `{}`?", *near));
  } else {
    d.note(fmt::format("sections are `{}`", fmt::join(names, "`, `")));
  }
  return nullptr;
}

SectionChecker::Settings SectionChecker::check_keys(const Section& s, const SectionTable& table) {
  Settings settings;
  std::map<std::string, Span> seen;
  std::vector<std::string> misspelt;  // keys that were most likely meant
  for (const Entry& entry : s.entries) {
    if (entry.section.valid()) continue;
    const std::string& name = entry.key.text;
    if (name.empty()) continue;
    if (auto [at, fresh] = seen.emplace(name, entry.key.span); !fresh) {
      read_.report(DiagId::E0302, entry.key.span, fmt::format("`{}` is given twice", name))
          .label(at->second, "the first time");
      continue;
    }
    const bool dim = table.dims && module_.dims.count(name) != 0;
    if (find_key(table, name) == nullptr && !dim) {
      misspelt.push_back(unknown_key(s, table, entry.key));
    } else if (!entry.broken && entry.value.valid()) {
      settings[name] = entry.value;
    }
  }
  check_nested(s, table);
  for (const Key& key : table.keys) {
    const bool meant = std::count(misspelt.begin(), misspelt.end(), key.name) != 0;
    if (!key.required || seen.count(key.name) != 0 || meant) continue;
    missing_key(s, key);
    // A section that only `--set` mentions: that it is not there is the one error.
    if (module_.sources->file(s.span.file).path.rfind("--set", 0) == 0) return {};
  }
  return settings;
}

void SectionChecker::check_nested(const Section& s, const SectionTable& table) {
  std::map<std::string, Span> seen;
  for (const Entry& entry : s.entries) {
    if (!entry.section.valid()) continue;
    const Section& inner = section(entry.section);
    if (std::count(table.nested.begin(), table.nested.end(), inner.kind.text) == 0) {
      Diagnostic& d =
          read_.report(DiagId::E0307, inner.kind.span,
                       fmt::format("`{}` holds no section `{}`", s.kind.text, inner.kind.text));
      if (auto near = suggest(inner.kind.text, table.nested))
        d.help(fmt::format("did you mean `{}`?", *near));
      continue;
    }
    const std::string name =
        inner.kind.text == "eval" && !inner.name.empty() ? inner.name.text : inner.kind.text;
    if (auto [at, fresh] = seen.emplace(name, head_span(inner)); !fresh) {
      Diagnostic& d =
          read_.report(DiagId::E0302, head_span(inner), fmt::format("a second section `{}`", name));
      d.label(at->second, "the first one");
      if (inner.kind.text == "eval") d.help("give it a name: `eval val { .. }`");
    }
  }
}

// Reports it, and gives the key that was most likely meant, or nothing.
std::string SectionChecker::unknown_key(const Section& s, const SectionTable& table,
                                        const Name& key) {
  std::vector<std::string> names;
  for (const Key& k : table.keys) names.emplace_back(k.name);
  for (const std::string& nested : table.nested) names.push_back(nested);
  if (table.dims) {
    for (const auto& [name, dim] : module_.dims) names.push_back(name);
  }
  // a dim whose line could not be parsed
  const bool upper = key.text[0] >= 'A' && key.text[0] <= 'Z';
  if (module_.main().ast.broken && table.dims && upper) return "";
  const std::string what = table.dims && table.keys.empty() ? "dim" : "key";
  Diagnostic& d = read_.report(DiagId::E0301, key.span,
                               fmt::format("`{}` has no {} `{}`", s.kind.text, what, key.text));
  for (const SectionTable& other : section_tables()) {
    if (find_key(other, key.text) == nullptr) continue;
    d.help(fmt::format("`{}` is a key of `{}`", key.text, other.kind));
    return "";
  }
  if (auto near = suggest(key.text, names)) {
    d.help(fmt::format("did you mean `{}`?", *near));
    d.helps.back().span = key.span;
    d.helps.back().replacement = *near;
    return *near;
  }
  if (!table.keys.empty()) {
    std::vector<std::string> keys;
    for (const Key& k : table.keys) keys.emplace_back(k.name);
    d.note(fmt::format("its keys are `{}`", fmt::join(keys, "`, `")));
  }
  return "";
}

void SectionChecker::missing_key(const Section& s, const Key& key) {
  read_.report(DiagId::E0306, head_span(s), fmt::format("`{}` lacks `{}`", s.kind.text, key.name))
      .help(fmt::format("add a line such as `{}`", example(key)));
}

std::vector<Arg> SectionChecker::elements(ExprId value) const {
  const Expr& e = expr(value);
  if (e.kind == ExprKind::kTuple) return e.args;
  if (e.kind == ExprKind::kParen) return elements(e.left);
  return {Arg{{}, value, e.span}};
}

// ------------------------------------------------------------------------------- machines

void SectionChecker::read_device(const Section& s) {
  const SectionTable& table = *find_table("device");
  const Settings settings = check_keys(s, table);
  DeviceSpec device;
  device.name = s.name.text;
  device.span = head_span(s);
  if (s.name.empty())
    read_.report(DiagId::E0306, s.kind.span, "a device needs a name").help("`device a100 { .. }`");
  for (const auto& [name, value] : settings) {
    auto amount = read_.quantity(*find_key(table, name), value);
    if (!amount) continue;
    if (name == "memory")
      device.memory = *amount;
    else if (name == "bandwidth")
      device.bandwidth = *amount;
    else if (name == "f32" || name == "tf32" || name == "bf16" || name == "f16")
      device.flops[name] = *amount;
    else
      device.cpu[name] = *amount;
  }
  data_.machines.devices.push_back(device);
}

std::optional<LinkSpec> SectionChecker::read_link(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(module_.main().ast, value));
  const bool call = e.kind == ExprKind::kCall && expr(e.left).kind == ExprKind::kName &&
                    expr(e.left).text == "link";
  if (!call || e.args.size() != 2 || !e.args[0].name.empty() || !e.args[1].name.empty()) {
    read_.wrong_form(key, value);
    return std::nullopt;
  }
  auto bandwidth = read_.quantity({key.name, KeyKind::kBandwidth, false, {}}, e.args[0].value);
  const Expr& latency = expr(e.args[1].value);
  const UnitOfMeasure* unit =
      latency.kind == ExprKind::kQuantity ? find_unit(latency.unit.text) : nullptr;
  if (unit == nullptr || unit->measure != UnitOfMeasure::Measure::kTime) {
    read_.report(DiagId::E0305, latency.span,
                 fmt::format("the latency of `{}` wants a time such as `5 us`", key.name));
    return std::nullopt;
  }
  constexpr double kMostLatency = 3600;  // seconds
  if (!(latency.number >= 0 && latency.number * unit->factor <= kMostLatency)) {
    read_.report(DiagId::E0304, latency.span, "a latency is at least 0, and at most an hour");
    return std::nullopt;
  }
  if (!bandwidth) return std::nullopt;
  return LinkSpec{*bandwidth, latency.number * unit->factor};
}

void SectionChecker::read_cluster(const Section& s) {
  const SectionTable& table = *find_table("cluster");
  const Settings settings = check_keys(s, table);
  ClusterSpec cluster;
  cluster.name = s.name.text;
  cluster.span = head_span(s);
  for (const auto& [name, value] : settings) {
    const Key& key = *find_key(table, name);
    if (name == "device") {
      if (auto device = read_.name(key, value)) cluster.device = *device;
    } else if (name == "nodes") {
      cluster.nodes = read_.whole(key, value).value_or(1);
    } else if (name == "per_node") {
      cluster.per_node = read_.whole(key, value).value_or(1);
    } else {
      auto link = read_link(key, value);
      (name == "intra" ? cluster.intra : name == "inter" ? cluster.inter : cluster.pairs) = link;
    }
  }
  const auto need = [&](const char* key, const char* why) {
    if (settings.count(key) != 0) return;
    read_.report(DiagId::E0306, head_span(s), fmt::format("`cluster` lacks `{}`: {}", key, why))
        .help(fmt::format("add a line such as `{}: link(300 GB/s, 5 us)`", key));
  };
  if (cluster.per_node > 1) need("intra", "it has several devices a node");
  if (cluster.nodes > 1) need("inter", "it has several nodes");
  check_size(cluster, head_span(s));
  data_.machines.clusters.push_back(cluster);
}

// Pairs are neighbours of one node; device numbers are small integers.
void SectionChecker::check_size(const ClusterSpec& cluster, Span where) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (cluster.pairs && cluster.per_node % 2 != 0) {
    read_
        .report(DiagId::E0801, where,
                fmt::format("{} devices a node do not make `pairs`", cluster.per_node))
        .help("give `per_node` an even number, or leave `pairs` out");
  } else if (cluster.nodes > kMost || cluster.per_node > kMost / cluster.nodes) {
    read_.report(DiagId::E0801, where, "a cluster has at most 2^30 devices");
  }
}

void SectionChecker::read_mesh(const Section& s) {
  const SectionTable& table = *find_table("mesh");
  const Settings settings = check_keys(s, table);
  MeshSpec mesh;
  mesh.name = s.name.text;
  mesh.span = head_span(s);
  if (auto axes = settings.find("axes"); axes != settings.end()) {
    std::set<std::string> seen;
    for (const Arg& arg : elements(axes->second)) {
      if (arg.name.empty()) {
        read_.wrong_form(*find_key(table, "axes"), axes->second);
        break;
      }
      if (!seen.insert(arg.name.text).second) {
        read_.report(DiagId::E0302, arg.name.span,
                     fmt::format("the axis `{}` is given twice", arg.name.text));
      }
      auto size = read_.whole({arg.name.text.c_str(), KeyKind::kCount, false, {}}, arg.value);
      mesh.axes.emplace_back(arg.name.text, size.value_or(1));
    }
    if (mesh.axes.size() > kMostMeshAxes) {
      read_.report(DiagId::E0803, expr(axes->second).span,
                   fmt::format("a mesh of {} axes: at most {} are planned for", mesh.axes.size(),
                               kMostMeshAxes));
    }
  }
  data_.machines.meshes.push_back(mesh);
}

void SectionChecker::read_plan(const Section& s) {
  const SectionTable& table = *find_table("plan");
  const Settings settings = check_keys(s, table);
  PlanSpec plan;
  plan.name = s.name.text;
  plan.span = head_span(s);
  if (auto value = settings.find("checkpoint"); value != settings.end()) {
    plan.checkpoint = read_.choice(*find_key(table, "checkpoint"), value->second).value_or("auto");
  }
  if (auto value = settings.find("budget"); value != settings.end()) {
    const Key& key = *find_key(table, "budget");
    const Expr& e = expr(strip_parens(module_.main().ast, value->second));
    const Expr& amount = e.kind == ExprKind::kUnary && e.op == AstOp::kNeg ? expr(e.right) : e;
    if (amount.kind == ExprKind::kQuantity) {
      plan.budget_bytes = read_.quantity(key, value->second);
    } else if (auto fraction =
                   read_.number({"budget", KeyKind::kPositive, false, {}}, value->second)) {
      if (*fraction > 1)
        read_.report(DiagId::E0304, expr(value->second).span,
                     fmt::format("`budget` wants {}", wanted(key)));
      plan.budget_fraction = fraction;
    }
  }
  for (const Entry& entry : s.entries) {
    if (!entry.section.valid() || section(entry.section).kind.text != "shard") continue;
    const Section& shard = section(entry.section);
    for (const auto& [dim, value] : check_keys(shard, *find_table("shard"))) {
      auto axis = read_.name({dim.c_str(), KeyKind::kName, false, {}}, value);
      if (axis) plan.shard[dim] = *axis;
    }
  }
  data_.machines.plans.push_back(plan);
}

// A cluster's device is one of the program or of stdlib/devices.cad; a plan's axes are those of the
// program's only mesh, when there is one.
void SectionChecker::check_names_of_machines() {
  std::vector<std::string> names;
  for (const DeviceSpec& device : data_.machines.devices) names.push_back(device.name);
  for (std::string& device : library_devices()) names.push_back(std::move(device));
  bool broken_mesh = false;
  for (const Item& item :
       module_.main().ast.items) {  // what cannot be read has a name all the same
    if (item.kind != ItemKind::kSection || !section(item.section).broken) continue;
    const Section& s = section(item.section);
    if (s.kind.text == "device") names.push_back(s.name.text);
    broken_mesh = broken_mesh || s.kind.text == "mesh";
  }
  for (const ClusterSpec& cluster : data_.machines.clusters) {
    if (cluster.device.empty() || std::count(names.begin(), names.end(), cluster.device) != 0)
      continue;
    Diagnostic& d = read_.report(DiagId::E0324, cluster.span,
                                 fmt::format("there is no device `{}`", cluster.device));
    if (auto near = suggest(cluster.device, names))
      d.help(fmt::format("did you mean `{}`?", *near));
  }
  if (data_.machines.meshes.size() != 1 || broken_mesh) return;
  std::vector<std::string> axes;
  for (const auto& [axis, size] : data_.machines.meshes[0].axes) axes.push_back(axis);
  for (const PlanSpec& plan : data_.machines.plans) {
    for (const auto& [dim, axis] : plan.shard) {
      if (axis == "none" || std::count(axes.begin(), axes.end(), axis) != 0) continue;
      Diagnostic& d = read_.report(
          DiagId::E0324, plan.span,
          fmt::format("`shard` puts `{}` on the axis `{}`, which the mesh lacks", dim, axis));
      d.label(data_.machines.meshes[0].span, "the mesh");
      if (auto near = suggest(axis, axes)) d.help(fmt::format("did you mean `{}`?", *near));
    }
  }
}

}  // namespace cad::frontend
