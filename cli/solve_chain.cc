// cli/solve_chain.cc -- `colauto solve` on a chain problem: the least time, the schedule with its
// time and peak as planner::simulate() finds them, or the least budget. docs/checkpointing.md.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/solve_command.h"
#include "planner/chain.h"
#include "planner/chain_file.h"

namespace cad::cli {
namespace {

using planner::ChainOp;
using planner::ChainOpKind;
using planner::ChainProblem;
using planner::ChainResult;
using planner::ChainStatus;

int64_t whole(double time) {
  return static_cast<int64_t>(time);  // sums of whole numbers below 2^53
}

double gap(const ChainResult& result) {
  return result.time > 0 ? (result.time - result.bound) / result.time : 0;
}

nlohmann::ordered_json to_json(const ChainProblem& problem, const ChainResult& result,
                               double seconds) {
  nlohmann::ordered_json json{{"schema", 1},
                              {"status", planner::chain_status_name(result.status)},
                              {"cost", nullptr},
                              {"bound", nullptr},
                              {"gap", nullptr},
                              {"budget", problem.budget},
                              {"peak", nullptr},
                              {"least_budget", result.least_budget},
                              {"unit", result.unit},
                              {"wall_s", seconds},
                              {"choices", result.choices},
                              {"schedule", nlohmann::ordered_json::array()}};
  if (result.status == ChainStatus::kInfeasible) return json;
  json["cost"] = whole(result.time);
  json["bound"] = whole(result.bound);
  json["gap"] = gap(result);
  json["peak"] = result.peak;
  for (const ChainOp& op : result.schedule) {
    nlohmann::ordered_json item{{"op", planner::chain_op_name(op.kind)}, {"stage", op.stage}};
    if (op.kind != ChainOpKind::kDrop) item["option"] = op.option;
    json["schedule"].push_back(std::move(item));
  }
  return json;
}

std::string range(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{} to {}", first, last);
}

// Operations of one kind on neighbouring stages on one line.
std::string schedule_text(const ChainProblem& problem, const std::vector<ChainOp>& schedule) {
  const auto loss = static_cast<int>(problem.chain.stages.size()) - 1;
  const auto with = [&](const ChainOp& op) {
    const bool choice = problem.chain.stages[op.stage].options.size() > 1 &&
                        (op.kind != ChainOpKind::kBackward || op.stage == loss);
    return choice ? fmt::format(" with option {}", op.option) : std::string();
  };
  std::string text;
  for (size_t i = 0, j = 0; i < schedule.size(); i = j) {
    const ChainOp& op = schedule[i];
    const int step = op.kind == ChainOpKind::kBackward ? -1 : 1;
    const auto alike = op.kind == ChainOpKind::kForwardKeep ? ChainOpKind::kForward : op.kind;
    const auto joins = [&](const ChainOp& next) {
      return next.kind == alike && alike != ChainOpKind::kDrop && next.stage != loss &&
             op.stage != loss && next.stage == schedule[j - 1].stage + step &&
             with(next) == with(op);
    };
    for (j = i + 1; j < schedule.size() && joins(schedule[j]);) ++j;
    const std::string stages = range(op.stage, schedule[j - 1].stage);
    if (op.stage == loss) {
      if (op.kind == ChainOpKind::kBackward) text += "  loss" + with(op) + "\n";
      if (op.kind == ChainOpKind::kDrop) text += fmt::format("  drop the input of {}\n", op.stage);
      continue;
    }
    switch (op.kind) {
      case ChainOpKind::kForwardKeep:
        text += fmt::format("  run {}{}, keep the input of {}\n", stages, with(op), op.stage);
        break;
      case ChainOpKind::kForward:
        text += fmt::format("  run {}{}\n", stages, with(op));
        break;
      case ChainOpKind::kForwardSave:
        text += fmt::format("  save {}{}\n", stages, with(op));
        break;
      case ChainOpKind::kBackward:
        text += fmt::format("  backward {}\n", stages);
        break;
      case ChainOpKind::kDrop:
        text += fmt::format("  drop the input of {}\n", op.stage);
        break;
    }
  }
  return text;
}

std::string to_text(const ChainProblem& problem, const ChainResult& result, double seconds) {
  const size_t n = problem.chain.stages.size() - 1;
  std::string text = fmt::format("chain of {} stage{} and the loss\nstatus  {}\n", n,
                                 n == 1 ? "" : "s", planner::chain_status_name(result.status));
  if (result.status == ChainStatus::kInfeasible) {
    text += fmt::format("memory  {} allowed; the least budget is {}\n", problem.budget,
                        result.least_budget);
    return text + fmt::format("took    {:.3f} s\n", seconds);
  }
  text += fmt::format("time    {}\nbound   {}\ngap     {:.4g} %\n", whole(result.time),
                      whole(result.bound), 100 * gap(result));
  text += fmt::format("memory  {} at the peak of {} allowed; the least budget is {}\n", result.peak,
                      problem.budget, result.least_budget);
  if (result.discretised)
    text += fmt::format("rounded sizes rounded up to multiples of {}\n", result.unit);
  text +=
      fmt::format("took    {:.3f} s\nschedule, {} operations\n", seconds, result.schedule.size());
  return text + schedule_text(problem, result.schedule);
}

}  // namespace

int solve_chain_file(const SolveFlags& flags, const std::string& text,
                     const CommonOptions& common) {
  const auto start = std::chrono::steady_clock::now();
  const Result<ChainProblem> problem = planner::read_chain(flags.file, text);
  if (!problem) return fail(common, problem.error());
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  planner::ChainLimits limits;
  limits.seconds = std::max(0.0, flags.time_s - seconds());
  const ChainResult result = planner::solve_chain(problem->chain, problem->budget, limits);
  const double taken = seconds();
  print(common.json ? to_json(*problem, result, taken).dump() + "\n"
                    : to_text(*problem, result, taken));
  if (result.status == ChainStatus::kInfeasible) return kExitNoPlan;
  return result.status == ChainStatus::kSimple ? kExitRunFailed : kExitOk;
}

}  // namespace cad::cli
