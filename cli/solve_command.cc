// cli/solve_command.cc -- `colauto solve FILE`: a problem file of the public formats, solved and
// checked. What is printed as cost and peak comes from solver::check(), not from the solver.
// The method: docs/solver.md.
#include "cli/solve_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "planner/solver/instance.h"

namespace cad::cli {
namespace {

using planner::solver::Checked;
using planner::solver::Instance;
using planner::solver::kForbidden;
using planner::solver::Solution;
using planner::solver::SolveStatus;

// Each kind of file: its top-level key and what runs it.
struct Kind {
  const char* key;
  int (*run)(const SolveFlags& flags, const std::string& text, const CommonOptions& common);
};
constexpr Kind kKinds[] = {
    {"problem", solve_pairwise},
    {"chain", solve_chain_file},
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run_solve(const SolveFlags& flags, const CommonOptions& common) {
  const auto start = std::chrono::steady_clock::now();
  const Result<std::string> text = planner::solver::read_packed(flags.file);
  if (!text) return fail(common, text.error());
  std::vector<std::string> keys;
  for (const Kind& kind : kKinds) keys.emplace_back(kind.key);
  const Result<std::string> key = planner::solver::first_key(flags.file, *text, keys);
  if (!key) return fail(common, key.error());
  for (const Kind& kind : kKinds)
    if (*key == kind.key) {
      SolveFlags left = flags;  // reading the file is part of the time
      left.time_s = std::max(0.0, flags.time_s - seconds_since(start));
      return kind.run(left, *text, common);
    }
  Diagnostic error =
      make_error(DiagId::E0822, fmt::format("`{}` holds no problem that colauto knows", flags.file),
                 kExitProgram);
  error.note(fmt::format("the kinds are told by the top-level key: `{}`", fmt::join(keys, "`, `")));
  return fail(common, error);
}

int exit_status(SolveStatus status) {
  if (status == SolveStatus::kInfeasible) return kExitNoPlan;
  const bool found =
      status != SolveStatus::kTimeLimitNoPlan && status != SolveStatus::kTimeLimitSimple;
  return found ? kExitOk : kExitRunFailed;
}

// Whole numbers in full: 532843, not 5.32843e+05.
std::string number(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  return fmt::format("{:.9g}", value);
}

nlohmann::json finite(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json to_json(const Instance& instance, const Solution& solution,
                       const std::optional<Checked>& checked) {
  nlohmann::json json{{"schema", 1},
                      {"name", instance.name},
                      {"status", planner::solver::status_text(solution.status)},
                      {"cost", checked ? finite(checked->cost) : nlohmann::json()},
                      {"bound", finite(solution.bound)},
                      {"gap", finite(solution.gap)},
                      {"budget_bytes", nullptr},
                      {"peak_bytes", nullptr},
                      {"least_budget_found_bytes", nullptr},
                      {"least_budget_bound_bytes", solution.least_budget_bound},
                      {"seconds", solution.wall_s},
                      {"columns", solution.columns},
                      {"rows", solution.rows},
                      {"choices", solution.choices}};
  if (instance.problem.budget) json["budget_bytes"] = *instance.problem.budget;
  if (checked) json["peak_bytes"] = checked->peak;
  if (solution.least_budget) json["least_budget_found_bytes"] = *solution.least_budget;
  return json;
}

std::string to_text(const Instance& instance, const Solution& solution,
                    const std::optional<Checked>& checked) {
  const auto& problem = instance.problem;
  std::string text =
      fmt::format("{}{}{} node{}, {} edge{}\n", instance.name, instance.name.empty() ? "" : ": ",
                  problem.nodes.size(), problem.nodes.size() == 1 ? "" : "s", problem.edges.size(),
                  problem.edges.size() == 1 ? "" : "s");
  text += fmt::format("status  {}\n", planner::solver::status_text(solution.status));
  if (checked) text += fmt::format("cost    {}\n", number(checked->cost));
  if (std::isfinite(solution.bound)) text += fmt::format("bound   {}\n", number(solution.bound));
  if (checked) {
    text += fmt::format("gap     {:.4g} %\n", 100 * solution.gap);
    text += fmt::format("memory  {} B at the peak", checked->peak);
    text += problem.budget ? fmt::format(" of {} B allowed\n", *problem.budget) : "\n";
  } else if (solution.no_budget_helps) {
    text += "memory  no budget helps: the forbidden choices and pairs exclude each other\n";
  } else if (problem.budget) {
    text += fmt::format("memory  {} B allowed; no solution needs less than {} B\n", *problem.budget,
                        solution.least_budget_bound);
    if (solution.least_budget)
      text += fmt::format("        a solution with {} B is known\n", *solution.least_budget);
  }
  text += fmt::format("time    {:.2f} s", solution.wall_s);
  if (solution.columns > 0)
    text += fmt::format(", {} columns and {} rows to lp_solve", solution.columns, solution.rows);
  return text + "\n";
}

}  // namespace

int solve_pairwise(const SolveFlags& flags, const std::string& text, const CommonOptions& common) {
  const auto start = std::chrono::steady_clock::now();
  const Result<Instance> instance = planner::solver::read_instance(flags.file, text);
  if (!instance) return fail(common, instance.error());
  planner::solver::Options options;
  options.time_s = std::max(0.0, flags.time_s - seconds_since(start));
  options.gap = flags.gap;
  options.simple = true;
  const Solution solution = planner::solver::solve(instance->problem, options);
  std::optional<Checked> checked;
  if (!solution.choices.empty() || instance->problem.nodes.empty()) {
    checked = planner::solver::check(instance->problem, solution.choices);
    CAD_CHECK(checked->fits, "the solver's choice does not satisfy the problem");
    CAD_CHECK(checked->cost == solution.cost, "the solver says cost {}, the check {}",
              solution.cost, checked->cost);
  }
  print(common.json ? to_json(*instance, solution, checked).dump() + "\n"
                    : to_text(*instance, solution, checked));
  return exit_status(solution.status);
}

Action declare_solve(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<SolveFlags>();
  app.add_option("FILE", own->file, "the problem, JSON, may be gzipped; - is standard input")
      ->required();
  app.add_option("--time", own->time_s, "seconds after which the best solution is printed")
      ->type_name("SECONDS")
      ->check(finite_from_zero())
      ->capture_default_str();
  app.add_option("--gap", own->gap, "stop at this proven gap, relative to the cost (0.01: 1 %)")
      ->type_name("FRACTION")
      ->check(fraction())
      ->capture_default_str();
  add_json_flag(app, common);
  return [own, &common] { return run_solve(*own, common); };
}

}  // namespace cad::cli
