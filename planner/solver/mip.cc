// planner/solver/mip.cc -- the layer over lp_solve. It hands numbers over without names, bounds the
// time by the wall clock (the library's own limit has whole seconds), and trusts no answer: a
// solution is put into the rows, "infeasible" is asked for twice. The library runs in a child
// process: on some programs of a few hundred columns it writes past its own arrays.
#include "planner/solver/mip.h"

#include <fcntl.h>
#include <lpsolve/lp_lib.h>  // defines: make_lp, set_columnex, solve, ..
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>

#include "base/check.h"

namespace cad::planner::solver {
namespace {

constexpr double kRowTolerance = 1e-6;  // relative to the row's largest term

struct Effort {
  double deadline = 0;
  int64_t left = 0;
};

int __WINAPI is_over(lprec*, void* handle) {
  Effort& effort = *static_cast<Effort*>(handle);
  return --effort.left < 0 || clock_s() > effort.deadline ? TRUE : FALSE;
}

struct Setting {
  int presolve, scaling, simplex, pricing;
  bool cutoff;
};
// The first is quick; the second shares none of its presolve and scaling.
constexpr Setting kSettings[] = {
    {PRESOLVE_NONE, SCALE_GEOMETRIC + SCALE_EQUILIBRATE + SCALE_INTEGERS, SIMPLEX_DUAL_PRIMAL,
     PRICER_DEVEX + PRICE_ADAPTIVE, true},
    {PRESOLVE_NONE, SCALE_NONE, SIMPLEX_PRIMAL_PRIMAL, PRICER_STEEPESTEDGE + PRICE_ADAPTIVE, false},
};

void fill(lprec* lp, const Program& program) {
  set_add_rowmode(lp, TRUE);
  std::vector<double> values;
  std::vector<int> columns;
  for (size_t c = 0; c < program.columns.size(); ++c) {
    if (program.columns[c].cost == 0) continue;
    values.push_back(program.columns[c].cost);
    columns.push_back(static_cast<int>(c) + 1);
  }
  set_obj_fnex(lp, static_cast<int>(values.size()), values.data(), columns.data());
  for (const Program::Row& row : program.rows) {
    columns.clear();
    for (const int c : row.columns) columns.push_back(c + 1);
    values = row.values;
    const bool equal = row.least == row.most;
    const int kind = equal ? EQ : row.most < kForbidden ? LE : GE;
    add_constraintex(lp, static_cast<int>(values.size()), values.data(), columns.data(), kind,
                     kind == GE ? row.least : row.most);
  }
  set_add_rowmode(lp, FALSE);
  for (size_t r = 0; r < program.rows.size(); ++r) {
    const Program::Row& row = program.rows[r];
    if (row.least != row.most && row.most < kForbidden && row.least > -kForbidden)
      set_rh_range(lp, static_cast<int>(r) + 1, row.most - row.least);
  }
  for (size_t c = 0; c < program.columns.size(); ++c) {
    const Program::Column& column = program.columns[c];
    const int at = static_cast<int>(c) + 1;
    const double infinite = get_infinite(lp);
    set_bounds(lp, at, column.least > -kForbidden ? column.least : -infinite,
               column.most < kForbidden ? column.most : infinite);
    if (column.whole) set_int(lp, at, TRUE);
  }
}

bool satisfies(const Program& program, const std::vector<double>& values) {
  for (size_t c = 0; c < program.columns.size(); ++c) {
    const Program::Column& column = program.columns[c];
    const double slack = kRowTolerance * std::max(1.0, std::abs(values[c]));
    if (values[c] < column.least - slack || values[c] > column.most + slack) return false;
    if (column.whole && std::abs(values[c] - std::round(values[c])) > kRowTolerance) return false;
  }
  for (const Program::Row& row : program.rows) {
    double sum = 0, largest = 1;
    for (size_t at = 0; at < row.columns.size(); ++at) {
      const double term = row.values[at] * values[row.columns[at]];
      sum += term;
      largest = std::max(largest, std::abs(term));
    }
    if (sum < row.least - kRowTolerance * largest || sum > row.most + kRowTolerance * largest)
      return false;
  }
  return true;
}

ProgramResult solve_with(const Program& program, const Setting& setting, Effort effort,
                         double cutoff) {
  ProgramResult result;
  lprec* lp = make_lp(0, static_cast<int>(program.columns.size()));
  CAD_CHECK(lp != nullptr, "lp_solve: no memory for {} columns", program.columns.size());
  set_verbose(lp, NEUTRAL);
  fill(lp, program);
  set_minim(lp);
  set_presolve(lp, setting.presolve, get_presolveloops(lp));
  set_scaling(lp, setting.scaling);
  set_simplextype(lp, setting.simplex);
  set_pivoting(lp, setting.pricing);
  set_bb_floorfirst(lp, BRANCH_CEILING);
  set_mip_gap(lp, TRUE, 1e-9);
  set_mip_gap(lp, FALSE, 1e-9);
  if (setting.cutoff && cutoff < kForbidden) set_obj_bound(lp, cutoff);
  put_abortfunc(lp, is_over, &effort);
  const int code = ::solve(lp);
  std::vector<double> values(program.columns.size());
  if (!values.empty()) get_variables(lp, values.data());
  const bool good =
      (code == OPTIMAL || code == SUBOPTIMAL || code == PRESOLVED) && satisfies(program, values);
  if (good) {
    result.cost = 0;
    for (size_t c = 0; c < values.size(); ++c) result.cost += program.columns[c].cost * values[c];
    result.values = std::move(values);
  }
  // not freed: the process ends here, and delete_lp() is where a damaged heap shows
  switch (code) {
    case OPTIMAL:
    case PRESOLVED:
      result.status = good ? ProgramStatus::kOptimal : ProgramStatus::kFailed;
      break;
    case SUBOPTIMAL:
      result.status = good ? ProgramStatus::kFeasible : ProgramStatus::kTime;
      break;
    case INFEASIBLE:
      result.status = ProgramStatus::kInfeasible;
      break;
    case UNBOUNDED:
      result.status = ProgramStatus::kUnbounded;
      break;
    case USERABORT:
    case TIMEOUT:
      result.status = ProgramStatus::kTime;
      break;
    default:
      result.status = ProgramStatus::kFailed;
  }
  return result;
}

// What the child sends before the values.
struct Answer {
  ProgramStatus status = ProgramStatus::kFailed;
  double cost = kForbidden;
  size_t values = 0;
};

bool write_all(int to, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = write(to, at, size);
    if (count <= 0) return false;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// False: the child ended early or the time is over.
bool read_all(int from, void* data, size_t size, double deadline) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    pollfd ready{from, POLLIN, 0};
    const double left = deadline - clock_s();
    if (left <= 0) return false;
    const int milliseconds = static_cast<int>(std::min(left * 1000, 1e6)) + 1;
    if (poll(&ready, 1, milliseconds) < 0) continue;  // a signal
    if (ready.revents == 0) continue;
    const ssize_t count = read(from, at, size);
    if (count <= 0) return false;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// solve_with() in a child process.
ProgramResult solve_apart(const Program& program, const Setting& setting, const Effort& effort,
                          double cutoff) {
  int ends[2];
  ProgramResult result;
  if (pipe(ends) != 0) return result;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGABRT, SIG_DFL);
    const int nowhere = open("/dev/null", O_WRONLY);  // the C library's last words
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    const ProgramResult solved = solve_with(program, setting, effort, cutoff);
    const Answer answer{solved.status, solved.cost, solved.values.size()};
    const bool sent = write_all(ends[1], &answer, sizeof answer) &&
                      write_all(ends[1], solved.values.data(), answer.values * sizeof(double));
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  if (child > 0) {
    const double deadline = effort.deadline + 0.1;  // the child looks at the clock itself
    Answer answer;
    bool good = read_all(ends[0], &answer, sizeof answer, deadline) &&
                (answer.values == 0 || answer.values == program.columns.size());
    std::vector<double> values(good ? answer.values : 0);
    good = good && read_all(ends[0], values.data(), values.size() * sizeof(double), deadline);
    if (good) {
      result = {answer.status, answer.cost, std::move(values)};
    } else {
      kill(child, SIGKILL);
      if (clock_s() >= deadline) result.status = ProgramStatus::kTime;
    }
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (!result.values.empty() && !satisfies(program, result.values)) result = {};
  }
  close(ends[0]);
  return result;
}

}  // namespace

ProgramResult solve_program(const Program& program, double time_s, double cutoff, int64_t work) {
  const Effort effort{clock_s() + time_s, work};
  ProgramResult first = solve_apart(program, kSettings[0], effort, cutoff);
  if (first.status == ProgramStatus::kOptimal || first.status == ProgramStatus::kFeasible ||
      first.status == ProgramStatus::kTime)
    return first;
  return solve_apart(program, kSettings[1], effort, cutoff);
}

}  // namespace cad::planner::solver
