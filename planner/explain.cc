// planner/explain.cc -- see explain.h. A choice is forced by masking its rivals; one fold then
// gives the best plan that has it, at the price of memory at which the plan was found.
#include "planner/explain.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/suggest.h"
#include "planner/plan_text.h"
#include "planner/priced.h"

namespace cad::planner {

namespace {

struct Place {
  size_t region = 0, variable = 0;
};

// `h.3.mlp` and `h.*.mlp` as paths are written: `h.{}.mlp`.
std::string of_all_iterations(const std::string& path) {
  std::string out;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string word = path.substr(begin, end - begin);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    out += begin == 0 ? "" : ".";
    out += (number && begin > 0) || word == "*" ? "{}" : word;
    begin = end + 1;
  }
  return out;
}

class Explainer {
 public:
  explicit Explainer(const Planning& planning)
      : planning_(planning), p_(*planning.problem), g_(*planning.problem->graph) {}

  // Variables called `name`, then those of the layer or loop called so; without any, those whose
  // path has it somewhere. An iteration (`h.3.mlp`, `h.*.mlp`) stands for all.
  [[nodiscard]] std::vector<Place> find(const std::string& name) const {
    std::vector<Place> exact, inside, part;
    const std::string wanted = lower(of_all_iterations(name));
    for (size_t r = 0; r < p_.regions.size(); ++r) {
      for (size_t v = 0; v < p_.regions[r].variables.size(); ++v) {
        const VariableInfo& info = p_.regions[r].variables[v];
        if (info.kind != VariableInfo::Kind::kSite && info.kind != VariableInfo::Kind::kParam)
          continue;
        const std::string path = lower(info.name);
        if (path == wanted)
          exact.push_back({r, v});
        else if (fmt::format(".{}.", path).find(fmt::format(".{}.", wanted)) != std::string::npos)
          inside.push_back({r, v});
        else if (path.find(wanted) != std::string::npos)
          part.push_back({r, v});
      }
    }
    exact.insert(exact.end(), inside.begin(), inside.end());
    return exact.empty() ? part : exact;
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const RegionProblem& r : p_.regions) {
      for (const VariableInfo& v : r.variables) {
        if (v.kind == VariableInfo::Kind::kSite || v.kind == VariableInfo::Kind::kParam)
          out.push_back(v.name);
      }
    }
    return out;
  }

  std::string run(const Place& place) {
    const VariableInfo& v = p_.regions[place.region].variables[place.variable];
    std::map<int, double> executions;  // choice -> times
    count(0, planning_.body, 1, place, executions);
    std::string out = title(v);
    int chosen = -1;
    double most = 0;
    for (const auto& [choice, times] : executions) {
      out += fmt::format(
          "  {}{}\n", text(v, static_cast<size_t>(choice)),
          p_.regions[place.region].trips > 1 ? fmt::format(", in {:.0f} iterations", times) : "");
      out += costs(v.choices[static_cast<size_t>(choice)]);
      if (times > most) {
        most = times;
        chosen = choice;
      }
    }
    if (chosen >= 0) out += rivals(place, v, static_cast<size_t>(chosen));
    return out;
  }

 private:
  static std::string lower(std::string s) {
    std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
    return s;
  }

  void count(size_t region, const BodyPlan& plan, double times, const Place& place,
             std::map<int, double>& out) const {
    if (region == place.region) out[plan.choices[place.variable]] += times;
    for (size_t c = 0; c < p_.regions[region].children.size(); ++c) {
      for (const Run& run : plan.loops[c]) {
        for (const BodyPlan& body : run.pattern)
          count(static_cast<size_t>(p_.regions[region].children[c].region), body,
                times * static_cast<double>(run.count), place, out);
      }
    }
  }

  [[nodiscard]] std::string title(const VariableInfo& v) const {
    if (v.kind == VariableInfo::Kind::kParam) return fmt::format("{}: parameter\n", v.name);
    const Site& s = p_.sites->sites[static_cast<size_t>(v.site)];
    std::string ops;
    for (const ir::NodeId n : s.nodes) {
      const std::string op = ir::op_name(g_.node(n).op);
      ops += (ops.empty() ? "" : " ") + op;
    }
    return fmt::format("{}: {}\n", v.name, ops);
  }

  [[nodiscard]] NamedLayout named(const VariableInfo& v, int layout) const {
    NamedLayout out;
    const ir::Type& type = g_.type(v.value);
    for (size_t a = 0; a < p_.mesh.axes.size(); ++a) {
      const int8_t x = v.table->layouts()[static_cast<size_t>(layout)].axis[a];
      out.push_back(x < 0 ? (x == kPartial ? "+" : "")
                          : g_.dim(type.dims[static_cast<size_t>(x)]).name);
    }
    return out;
  }

  [[nodiscard]] std::string text(const VariableInfo& v, size_t choice) const {
    if (v.kind == VariableInfo::Kind::kParam) {
      const int gradient = v.gradient[choice];
      return fmt::format(
          "stored {}, gradient {}, states {}",
          layout_text(named(v, v.layout[choice]), p_.mesh.axes),
          gradient < 0 ? "summed on each device" : layout_text(named(v, gradient), p_.mesh.axes),
          layout_text(named(v, v.optimizer[choice]), p_.mesh.axes));
    }
    const SiteOption& o = v.options[static_cast<size_t>(v.option[choice])];
    NamedLayout split;
    for (const int8_t d : o.split)
      split.push_back(d < 0 ? "" : g_.dim(v.dims[static_cast<size_t>(d)]).name);
    const Site& s = p_.sites->sites[static_cast<size_t>(v.site)];
    const Variant& variant = s.variants[static_cast<size_t>(v.variant[choice])];
    const std::string where = layout_text(split, p_.mesh.axes);
    const char* kept = variant.kept == Kept::kSaved   ? "result saved"
                       : variant.kept == Kept::kAgain ? "runs again in the backward pass"
                       : !variant.saved.empty()       ? "part saved"
                                                      : "result not kept";
    return fmt::format("{}, {}", where == "whole" ? "the same on every device" : where, kept);
  }

  static std::string costs(const Choice& c) {
    std::string out;
    const auto add = [&](const char* name, float s) {
      if (s > 0)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name,
                           seconds_text(static_cast<double>(s)));
    };
    add("compute", c.terms.compute);
    add("again", c.terms.recompute);
    add("its own collectives", c.terms.communicate);
    add("parameter collectives", c.terms.parameters);
    add("update", c.terms.optimizer);
    const auto bytes = [&](const char* name, float b) {
      if (b > 0)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name,
                           bytes_text(static_cast<double>(b)));
    };
    bytes("parameters", c.parameters);
    bytes("gradients", c.gradients);
    bytes("states", c.optimizer);
    bytes("saved", c.saved);
    return out.empty() ? "    free of its own\n" : "    each: " + out + "\n";
  }

  [[nodiscard]] double value(const Evaluation& e) const {
    return e.seconds + planning_.price * (e.bytes.persistent() + e.bytes.saved + e.bytes.again);
  }

  // What a forced choice costs in all, with everything else at its best.
  [[nodiscard]] Evaluation forced(const Place& place, const std::vector<char>& allowed) const {
    Mask mask;
    for (const RegionProblem& r : p_.regions) {
      mask.choices.emplace_back();
      for (const VariableInfo& v : r.variables)
        mask.choices.back().emplace_back(v.choices.size(), 1);
    }
    mask.choices[place.region][place.variable] = allowed;
    PriceOptions options;
    options.mask = &mask;
    options.price = planning_.price;
    Evaluation best;
    best.valid = false;
    for (const double hide : {0.0, 0.5, 1.0}) {  // whichever line of planner/frontier.h counts
      options.hide = hide;
      const Priced priced(p_, options);
      if (!std::isfinite(priced.value())) return best;
      const Evaluation e = evaluate(p_, priced.plan());
      if (e.valid && (!best.valid || value(e) < value(best))) best = e;
      if (best.parameters <= best.compute) break;
    }
    return best;
  }

  std::string rivals(const Place& place, const VariableInfo& v, size_t chosen) const {
    // rivals differ in what text() shows; choices that read alike are one
    std::map<std::string, std::vector<char>> groups;
    for (size_t i = 0; i < v.choices.size(); ++i) {
      auto& allowed = groups[text(v, i)];
      allowed.resize(v.choices.size(), 0);
      allowed[i] = 1;
    }
    const std::string own = text(v, chosen);
    struct Rival {
      std::string text;
      Evaluation e;
      double value = 0;
    };
    const Evaluation base = forced(place, groups[own]);
    std::vector<Rival> list;
    for (const auto& [name, allowed] : groups) {
      if (name == own) continue;
      Rival r{name, forced(place, allowed), 0};
      if (!r.e.valid) continue;
      r.value = value(r.e);
      list.push_back(std::move(r));
    }
    std::sort(list.begin(), list.end(),
              [](const Rival& a, const Rival& b) { return a.value < b.value; });
    std::string out = list.empty() ? "  there is no other way\n" : "  next best\n";
    for (size_t i = 0; i < std::min<size_t>(3, list.size()); ++i) {
      const Rival& r = list[i];
      out += fmt::format("    {}: step {}{}, peak {}\n", r.text,
                         r.e.seconds >= base.seconds ? "+" : "-",
                         seconds_text(std::abs(r.e.seconds - base.seconds)), bytes_text(r.e.peak));
    }
    if (!list.empty()) out += flip(base, list[0].e);
    return out;
  }

  [[nodiscard]] std::string flip(const Evaluation& base, const Evaluation& rival) const {
    const double seconds = rival.seconds - base.seconds;
    const double bytes = rival.peak - base.peak;
    if (std::abs(seconds) <= 1e-6 * base.seconds)
      return bytes == 0 ? std::string("  the first is as good\n")
                        : fmt::format("  the first is as fast, and needs {} {} a device\n",
                                      bytes_text(std::abs(bytes)), bytes > 0 ? "more" : "less");
    if (seconds < 0 && bytes > 0)
      return fmt::format("  the first would win with {} more memory a device\n", bytes_text(bytes));
    if (seconds >= 0 && bytes < 0)
      return fmt::format("  the first would win if the budget were below {}\n",
                         bytes_text(base.peak));
    const double communicate = (base.communicate + base.parameters - base.hidden) -
                               (rival.communicate + rival.parameters - rival.hidden);
    const double rest = seconds + communicate;
    if (communicate > 0 && rest > 0)
      return fmt::format("  the first would win on links {:.2g} times slower\n",
                         rest / communicate);
    if (communicate < 0 && rest < 0 && seconds > 0)
      return fmt::format("  the first would win on links {:.2g} times faster\n",
                         communicate / rest);
    return "  no change of memory or links alone would make the first win\n";
  }

  const Planning& planning_;
  const Problem& p_;
  const ir::Graph& g_;
};

}  // namespace

Result<std::string> explain(const Planning& planning, const std::string& name) {
  Explainer explainer(planning);
  const std::vector<Place> places = explainer.find(name);
  if (places.empty()) {
    Diagnostic error = make_error(
        DiagId::E0904, fmt::format("the plan has no op or parameter `{}`", name), kExitUsage);
    std::vector<std::string> names = explainer.names();
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (const auto near = suggest(name, names))
      return error.help(fmt::format("did you mean `{}`?", *near));
    const size_t all = names.size();
    names.resize(std::min<size_t>(all, 12));
    error.help(fmt::format("it has `{}`{}", fmt::join(names, "`, `"),
                           all > 12 ? fmt::format(" and {} more", all - 12) : ""));
    return error;
  }
  std::string out;
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, places.size()); ++i) out += explainer.run(places[i]);
  if (places.size() > kShown)
    out += fmt::format("and {} more of `{}`: a longer path names them\n", places.size() - kShown,
                       name);
  return out;
}

}  // namespace cad::planner
