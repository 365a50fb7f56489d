// frontend/section_train.cc -- a `train` section with its `eval`s and `save` into a TrainUse.
// Numbers and names are read here; loss, metrics, schedules and optimizers are lowered in
// lower_train.cc.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "frontend/section_checker.h"

namespace cad::frontend {

namespace {

Span head_span(const Section& section) {
  Span span = section.kind.span;
  if (!section.name.empty()) span.end = section.name.span.end;
  return span;
}

}  // namespace

void SectionChecker::read_train(const Section& s) {
  const SectionTable& table = *find_table("train");
  TrainUse train;
  train.name = s.name.text;
  train.span = head_span(s);
  const size_t before = diagnostics_.errors();
  const Settings settings = check_keys(s, table);
  const bool keys_fine = diagnostics_.errors() == before;
  const auto value = [&](const char* name) {
    auto found = settings.find(name);
    return found == settings.end() ? ExprId{} : found->second;
  };
  if (value("data").valid())
    train.data = read_data(*find_key(table, "data"), value("data"), nullptr);
  train.loss = value("loss");
  if (value("optimizer").valid())
    read_optimizers(*find_key(table, "optimizer"), value("optimizer"), train);
  if (value("init").valid()) read_init(*find_key(table, "init"), value("init"), train);
  read_numbers(train, settings, table);
  if (train.steps == 0 && !train.epochs && !value("steps").valid() && !value("epochs").valid() &&
      keys_fine) {
    read_.report(DiagId::E0306, head_span(s), "`train` lacks `steps` or `epochs`")
        .help("add a line such as `steps: 500`");
  }
  if (value("steps").valid() && value("epochs").valid()) {
    read_
        .report(DiagId::E0309, expr(value("epochs")).span,
                "`steps` and `epochs` both say when to stop")
        .label(expr(value("steps")).span, "`steps`")
        .help("leave one of them out");
  }
  for (const Entry& entry : s.entries) {
    if (!entry.section.valid() || section(entry.section).broken) continue;
    const Section& inner = section(entry.section);
    if (inner.kind.text == "eval") read_eval(inner, train);
  }
  for (const Entry& entry : s.entries) {
    if (entry.section.valid() && section(entry.section).kind.text == "save")
      read_save(section(entry.section), train);
  }
  const bool broken =
      std::any_of(s.entries.begin(), s.entries.end(), [](const Entry& e) { return e.broken; });
  train.valid =
      diagnostics_.errors() == before && !broken && !train.data.empty() && train.loss.valid();
  data_.trains.push_back(std::move(train));
}

void SectionChecker::read_numbers(TrainUse& train, const Settings& settings,
                                  const SectionTable& table) {
  for (const auto& [name, value] : settings) {
    const Key* key = find_key(table, name);
    if (key == nullptr) continue;  // a dim
    if (name == "accumulate") train.accumulate = read_.whole(*key, value).value_or(1);
    if (name == "clip") train.clip = read_.number(*key, value);
    if (name == "ema") train.ema = read_.number(*key, value);
    if (name == "steps") train.steps = read_.whole(*key, value).value_or(0);
    if (name == "epochs") train.epochs = read_.number(*key, value);
    if (name == "seed") train.seed = static_cast<uint64_t>(read_.whole(*key, value).value_or(0));
    if (name == "dropout") train.dropout = read_.on_off(*key, value).value_or(true);
    if (name == "order")
      train.shuffled = read_.choice(*key, value).value_or("shuffled") == "shuffled";
    if (name == "precision") {
      const std::string precision = read_.choice(*key, value).value_or("f32");
      train.precision = precision == "bf16"  ? ir::DType::kBF16
                        : precision == "f16" ? ir::DType::kF16
                                             : ir::DType::kF32;
    }
  }
}

void SectionChecker::read_eval(const Section& s, TrainUse& train) {
  const SectionTable& table = *find_table("eval");
  EvalUse eval;
  eval.name = s.name.empty() ? "eval" : s.name.text;
  eval.span = head_span(s);
  for (const auto& [name, value] : check_keys(s, table)) {
    const Key& key = *find_key(table, name);
    if (name == "data") eval.data = read_data(key, value, &train.data);
    if (name == "every") eval.every = read_.whole(key, value).value_or(0);
    if (name == "batches") eval.batches = read_.whole(key, value);
    if (name == "metrics") read_metrics(key, value, eval);
  }
  train.evals.push_back(std::move(eval));
}

void SectionChecker::read_metrics(const Key& key, ExprId value, EvalUse& eval) {
  std::set<std::string> seen = {"loss"};
  for (const Arg& arg : elements(value)) {
    if (arg.name.empty()) return read_.wrong_form(key, value);
    if (!seen.insert(arg.name.text).second) {
      read_.report(DiagId::E0302, arg.name.span,
                   arg.name.text == "loss"
                       ? "the name `loss` is taken: it is always evaluated"
                       : fmt::format("the metric `{}` is given twice", arg.name.text));
      continue;
    }
    eval.metrics.emplace_back(arg.name, arg.value);
  }
}

void SectionChecker::read_save(const Section& s, TrainUse& train) {
  const SectionTable& table = *find_table("save");
  for (const auto& [name, value] : check_keys(s, table)) {
    const Key& key = *find_key(table, name);
    if (name == "to") train.save.to = read_.text(key, value).value_or("");
    if (name == "every") train.save.every = read_.whole(key, value).value_or(0);
    if (name == "keep") train.save.keep = read_.whole(key, value).value_or(0);
    if (name == "frozen") train.save.frozen = read_.on_off(key, value).value_or(true);
    if (name == "best") read_best(key, value, train);
  }
}

// best: min(loss), max(val.acc)
void SectionChecker::read_best(const Key& key, ExprId value, TrainUse& train) {
  const Expr& e = expr(strip_parens(module_.main().ast, value));
  const bool call = e.kind == ExprKind::kCall && expr(e.left).kind == ExprKind::kName &&
                    e.args.size() == 1 && e.args[0].name.empty();
  const std::string which = call ? expr(e.left).text : "";
  if (which != "min" && which != "max") return read_.wrong_form(key, value);
  const Expr& of = expr(e.args[0].value);
  std::string name;
  if (of.kind == ExprKind::kName) name = of.text;
  if (of.kind == ExprKind::kMember && expr(of.left).kind == ExprKind::kName)
    name = expr(of.left).text + "." + of.member.text;
  if (name.empty()) return read_.wrong_form(key, value);
  std::vector<std::string> names;
  for (const EvalUse& eval : train.evals) {
    std::vector<std::string> own = {"loss"};
    for (const auto& [metric, metric_expr] : eval.metrics) own.push_back(metric.text);
    for (const std::string& metric : own) {
      names.push_back(eval.name + "." + metric);
      names.push_back(metric);
    }
  }
  if (std::count(names.begin(), names.end(), name) == 0) {
    Diagnostic& d =
        read_.report(DiagId::E0324, of.span, fmt::format("no evaluation has a result `{}`", name));
    if (train.evals.empty()) {
      d.help("add an evaluation: `eval { data: .., every: 100 }`");
    } else {
      d.note("`best` takes `loss` or a metric of an `eval`, as `NAME` or `eval.NAME`");
    }
    return;
  }
  train.save.best = which == "min" ? ir::SaveSpec::Best::kMin : ir::SaveSpec::Best::kMax;
  train.save.best_of = name;
}

// init: "file.safetensors", load("file", under: "ref"), or a list
void SectionChecker::read_init(const Key& key, ExprId value, TrainUse& train) {
  for (const Arg& arg : elements(value)) {
    const Expr& e = expr(strip_parens(module_.main().ast, arg.value));
    ir::InitFile file;
    file.span = e.span;
    if (!arg.name.empty()) return read_.wrong_form(key, value);
    if (e.kind == ExprKind::kString) {
      file.file = e.text;
    } else if (e.kind == ExprKind::kCall && expr(e.left).kind == ExprKind::kName &&
               expr(e.left).text == "load") {
      for (const Arg& part : e.args) {
        const Expr& v = expr(part.value);
        if (v.kind != ExprKind::kString || (!part.name.empty() && part.name.text != "under"))
          return read_.wrong_form(key, arg.value);
        (part.name.empty() ? file.file : file.under) = v.text;
      }
    }
    if (file.file.empty()) return read_.wrong_form(key, arg.value);
    train.init.push_back(file);
  }
}

}  // namespace cad::frontend
