// planner/fold.cc -- see fold.h. A node with neighbours a and b becomes an edge a-b:
//   cost[ca][cb] = min over its choices v of  Ea[ca][in(v)] + node(v) + Eb[out(v)][cb]
// done in two products over classes, not choices. Choices are found again by walking the steps
// backwards: each node's neighbours are known by then.
#include "planner/fold.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "planner/fold_core.h"

namespace cad::planner {

namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CAD_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CAD_VECTOR_CLONES
#endif

// row[j] = min(row[j], add + from[j])
CAD_VECTOR_CLONES void relax(float* row, const float* from, float add, int n) {
  for (int j = 0; j < n; ++j) {
    const float v = add + from[j];
    row[j] = v < row[j] ? v : row[j];
  }
}

void transpose(FoldEdge& edge) {
  std::swap(edge.a, edge.b);
  std::swap(edge.class_a, edge.class_b);
  Table t(edge.cost.columns, edge.cost.rows, 0);
  for (int r = 0; r < edge.cost.rows; ++r) {
    for (int c = 0; c < edge.cost.columns; ++c) t(c, r) = edge.cost(r, c);
  }
  edge.cost = std::move(t);
}

// Joint classes of two class maps over the same choices.
std::vector<int32_t> joint(const std::vector<int32_t>& x, const std::vector<int32_t>& y,
                           std::vector<std::pair<int32_t, int32_t>>& pairs) {
  std::map<std::pair<int32_t, int32_t>, int32_t> number;
  std::vector<int32_t> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto [at, fresh] =
        number.emplace(std::make_pair(x[i], y[i]), static_cast<int32_t>(pairs.size()));
    if (fresh) pairs.emplace_back(x[i], y[i]);
    out[i] = at->second;
  }
  return out;
}

}  // namespace

Table min_plus(const Table& a, const Table& b) {
  CAD_CHECK(a.columns == b.rows, "min-plus product of {} columns and {} rows", a.columns, b.rows);
  // many classes are forbidden throughout: only the other columns and rows of b are worked on
  std::vector<char> row_used(static_cast<size_t>(b.rows), 0);
  std::vector<char> column_used(static_cast<size_t>(b.columns), 0);
  for (int k = 0; k < b.rows; ++k) {
    const float* row = b.at.data() + static_cast<size_t>(k) * b.columns;
    for (int j = 0; j < b.columns; ++j) {
      if (row[j] == kNever) continue;
      row_used[static_cast<size_t>(k)] = 1;
      column_used[static_cast<size_t>(j)] = 1;
    }
  }
  std::vector<int> columns;
  for (int j = 0; j < b.columns; ++j) {
    if (column_used[static_cast<size_t>(j)] != 0) columns.push_back(j);
  }
  const int n = static_cast<int>(columns.size());
  Table packed(b.rows, n, kNever);
  for (int k = 0; k < b.rows; ++k) {
    for (int c = 0; c < n; ++c) packed(k, c) = b(k, columns[static_cast<size_t>(c)]);
  }
  Table out(a.rows, b.columns, kNever);
  std::vector<float> row(static_cast<size_t>(n));
  for (int i = 0; i < a.rows; ++i) {
    std::fill(row.begin(), row.end(), kNever);
    for (int k = 0; k < a.columns; ++k) {
      const float add = a(i, k);
      if (add == kNever || row_used[static_cast<size_t>(k)] == 0) continue;
      relax(row.data(), packed.at.data() + static_cast<size_t>(k) * n, add, n);
    }
    for (int c = 0; c < n; ++c)
      out(i, columns[static_cast<size_t>(c)]) = row[static_cast<size_t>(c)];
  }
  return out;
}

namespace {

// Of branching in one fold: entries of tables, times a guess of how often each is looked at.
constexpr double kMostBranchWork = 2e9, kLooks = 64;

}  // namespace

Folded::Folded(FoldProblem problem, std::vector<int> kept)
    : problem_(std::move(problem)),
      kept_(std::move(kept)),
      gone_(problem_.nodes.size(), 0),
      work_(kMostBranchWork) {
  run();
}

Folded::Folded(FoldProblem problem, std::vector<int> kept, std::vector<char> gone, int depth,
               double work)
    : problem_(std::move(problem)),
      kept_(std::move(kept)),
      gone_(std::move(gone)),
      depth_(depth),
      work_(work) {
  run();
}

std::vector<int> Folded::degrees() const {
  std::vector<int> degree(problem_.nodes.size(), 0);
  for (const FoldEdge& edge : problem_.edges) {
    ++degree[static_cast<size_t>(edge.a)];
    ++degree[static_cast<size_t>(edge.b)];
  }
  return degree;
}

void Folded::run() {
  while (true) {
    merge_parallel();
    bool left = false;
    const int node = next(left);
    if (node >= 0) {
      eliminate(node);
      continue;
    }
    if (!left) break;
    if (guide_.empty()) {
      if (branch()) return;
      stuck_ = depth_ > 0;
      if (stuck_ || !guide()) return;
    }
    fix(most_connected());
  }
  finish();
  if (!exact_ && kept_.empty() && result_.at[0] <= bound_.at[0] * (1 + 2e-6F)) exact_ = true;
}

// The cheapest of the nodes with at most two neighbours; -1: none. `left`: there are others.
int Folded::next(bool& left) const {
  std::vector<char> keep(problem_.nodes.size(), 0);
  for (const int k : kept_) keep[static_cast<size_t>(k)] = 1;
  const std::vector<int> degree = degrees();
  std::vector<double> size(problem_.nodes.size(), 1);
  for (const FoldEdge& edge : problem_.edges) {
    size[static_cast<size_t>(edge.a)] *= static_cast<double>(edge.cost.at.size());
    size[static_cast<size_t>(edge.b)] *= static_cast<double>(edge.cost.at.size());
  }
  int best = -1;
  for (size_t n = 0; n < problem_.nodes.size(); ++n) {
    if (gone_[n] != 0 || keep[n] != 0) continue;
    left = true;
    if (degree[n] > 2) continue;
    const auto key = [&](size_t m) { return std::make_pair(degree[m], size[m]); };
    if (best < 0 || key(n) < key(static_cast<size_t>(best))) best = static_cast<int>(n);
  }
  return best;
}

// The node with the most neighbours, of these the one with the fewest choices.
int Folded::most_connected() const {
  const std::vector<int> degree = degrees();
  int node = -1;
  for (size_t n = 0; n < problem_.nodes.size(); ++n) {
    if (gone_[n] != 0 || std::find(kept_.begin(), kept_.end(), static_cast<int>(n)) != kept_.end())
      continue;
    const auto key = [&](size_t m) { return std::make_pair(-degree[m], problem_.nodes[m].size()); };
    if (node < 0 || key(n) < key(static_cast<size_t>(node))) node = static_cast<int>(n);
  }
  return node;
}

Table Folded::filled(float value) const {
  const auto size = [&](size_t k) {
    return static_cast<int>(problem_.nodes[static_cast<size_t>(kept_[k])].size());
  };
  return Table(kept_.size() == 2 ? size(0) : 1, kept_.empty() ? 1 : size(kept_.size() - 1), value);
}

// Tries every choice of the most connected node. False: that is too much work, or too deep.
bool Folded::branch() {
  constexpr int kMostDepth = 2;
  const int node = most_connected();
  if (depth_ >= kMostDepth) return false;
  double leaf = 1;
  for (const FoldEdge& edge : problem_.edges)
    leaf += static_cast<double>(edge.cost.at.size()) * kLooks;
  const std::vector<float>& costs = problem_.nodes[static_cast<size_t>(node)];
  const auto allowed = static_cast<double>(costs.size()) -
                       static_cast<double>(std::count(costs.begin(), costs.end(), kNever));
  if (allowed * leaf > work_) return false;
  work_ /= std::max(allowed, 1.0);
  if (branches_on(node)) return true;
  branches_.clear();
  best_branch_.clear();
  return false;
}

bool Folded::branches_on(int node) {
  const std::vector<float> costs = problem_.nodes[static_cast<size_t>(node)];
  result_ = filled(kNever);
  best_branch_.assign(result_.at.size(), -1);
  for (size_t c = 0; c < costs.size(); ++c) {
    branches_.emplace_back();
    if (costs[c] == kNever) continue;
    branches_.back() =
        std::unique_ptr<Folded>(new Folded(with_choice(node, c), kept_, gone_, depth_ + 1, work_));
    const Folded& made = *branches_.back();
    if (made.stuck_) return false;
    for (size_t i = 0; i < result_.at.size(); ++i) {
      if (made.result_.at[i] + constant_ >= result_.at[i]) continue;
      result_.at[i] = made.result_.at[i] + constant_;
      best_branch_[i] = static_cast<int32_t>(c);
    }
  }
  return true;
}

FoldProblem Folded::with_choice(int node, size_t choice) const {
  FoldProblem fixed;
  fixed.nodes = problem_.nodes;
  std::vector<float>& own = fixed.nodes[static_cast<size_t>(node)];
  for (size_t o = 0; o < own.size(); ++o) {
    if (o != choice) own[o] = kNever;
  }
  for (const FoldEdge& edge : problem_.edges) {
    if (edge.a != node && edge.b != node) {
      fixed.edges.push_back(edge);
      continue;
    }
    const bool first = edge.a == node;
    std::vector<float>& other = fixed.nodes[static_cast<size_t>(first ? edge.b : edge.a)];
    for (size_t o = 0; o < other.size(); ++o)
      other[o] += first ? edge.cost(edge.class_a[choice], edge.class_b[o])
                        : edge.cost(edge.class_a[o], edge.class_b[choice]);
  }
  return fixed;
}

// What nodes choose if they must be fixed, and the bound. A loop's body must be able to go on as it
// begins, so its kept nodes choose alike. False: nothing is allowed; the result says so.
bool Folded::guide() {
  exact_ = false;
  const Core free = solve_core(problem_, gone_, {});
  bound_ = filled(static_cast<float>(static_cast<double>(constant_) + free.bound));
  const bool pair = kept_.size() == 2 && problem_.nodes[static_cast<size_t>(kept_[0])].size() ==
                                             problem_.nodes[static_cast<size_t>(kept_[1])].size();
  const Core core = pair && free.feasible ? solve_core(problem_, gone_, kept_) : free;
  guide_ = core.feasible ? core.choices : free.choices;
  if (!free.feasible) result_ = filled(kNever);
  return free.feasible;
}

// Its edges become costs of its neighbours.
void Folded::fix(int node) {
  const auto choice = static_cast<size_t>(guide_[static_cast<size_t>(node)]);
  problem_ = with_choice(node, choice);
  eliminate(node);
}

void Folded::merge_parallel() {
  std::map<std::pair<int, int>, size_t> first;
  std::vector<FoldEdge> edges;
  for (FoldEdge& edge : problem_.edges) {
    if (edge.a > edge.b) transpose(edge);
    const auto [at, fresh] = first.emplace(std::make_pair(edge.a, edge.b), edges.size());
    if (fresh) {
      edges.push_back(std::move(edge));
      continue;
    }
    FoldEdge& sum = edges[at->second];
    std::vector<std::pair<int32_t, int32_t>> rows, columns;
    std::vector<int32_t> class_a = joint(sum.class_a, edge.class_a, rows);
    std::vector<int32_t> class_b = joint(sum.class_b, edge.class_b, columns);
    Table cost(static_cast<int>(rows.size()), static_cast<int>(columns.size()), 0);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t c = 0; c < columns.size(); ++c) {
        cost(static_cast<int>(r), static_cast<int>(c)) =
            sum.cost(rows[r].first, columns[c].first) +
            edge.cost(rows[r].second, columns[c].second);
      }
    }
    sum.class_a = std::move(class_a);
    sum.class_b = std::move(class_b);
    sum.cost = std::move(cost);
  }
  problem_.edges = std::move(edges);
}

void Folded::eliminate(int node) {
  Step step;
  step.node = node;
  step.cost = std::move(problem_.nodes[static_cast<size_t>(node)]);
  std::vector<FoldEdge> rest;
  for (FoldEdge& edge : problem_.edges) {
    if (edge.b == node) transpose(edge);
    (edge.a == node ? step.edges : rest).push_back(std::move(edge));
  }
  problem_.edges = std::move(rest);
  gone_[static_cast<size_t>(node)] = 1;
  if (step.edges.empty()) {
    constant_ += *std::min_element(step.cost.begin(), step.cost.end());
  } else if (step.edges.size() == 1) {
    const FoldEdge& edge = step.edges[0];
    std::vector<float> best(static_cast<size_t>(edge.cost.rows), kNever);
    for (size_t v = 0; v < step.cost.size(); ++v) {
      float& b = best[static_cast<size_t>(edge.class_a[v])];
      b = std::min(b, step.cost[v]);
    }
    std::vector<float> add(static_cast<size_t>(edge.cost.columns), kNever);
    for (int r = 0; r < edge.cost.rows; ++r) {
      if (best[static_cast<size_t>(r)] == kNever) continue;
      relax(add.data(), edge.cost.at.data() + static_cast<size_t>(r) * edge.cost.columns,
            best[static_cast<size_t>(r)], edge.cost.columns);
    }
    std::vector<float>& other = problem_.nodes[static_cast<size_t>(edge.b)];
    for (size_t c = 0; c < other.size(); ++c) other[c] += add[static_cast<size_t>(edge.class_b[c])];
  } else {
    const FoldEdge &x = step.edges[0], &y = step.edges[1];
    Table own(x.cost.rows, y.cost.rows, kNever);  // least cost of the choices of a pair of classes
    for (size_t v = 0; v < step.cost.size(); ++v) {
      float& b = own(x.class_a[v], y.class_a[v]);
      b = std::min(b, step.cost[v]);
    }
    FoldEdge made;
    made.a = x.b;
    made.b = y.b;
    made.class_a = x.class_b;
    made.class_b = y.class_b;
    Table to_y = min_plus(own, y.cost);
    FoldEdge turned = x;
    transpose(turned);
    made.cost = min_plus(turned.cost, to_y);
    problem_.edges.push_back(std::move(made));
  }
  steps_.push_back(std::move(step));
}

void Folded::finish() {
  if (kept_.empty()) {
    result_ = Table(1, 1, constant_);
    return;
  }
  const std::vector<float>& first = problem_.nodes[static_cast<size_t>(kept_[0])];
  if (kept_.size() == 1) {
    result_ = Table(1, static_cast<int>(first.size()), 0);
    for (size_t i = 0; i < first.size(); ++i) result_.at[i] = first[i] + constant_;
    return;
  }
  const std::vector<float>& second = problem_.nodes[static_cast<size_t>(kept_[1])];
  result_ = Table(static_cast<int>(first.size()), static_cast<int>(second.size()), 0);
  merge_parallel();
  for (size_t i = 0; i < first.size(); ++i) {
    for (size_t j = 0; j < second.size(); ++j)
      result_(static_cast<int>(i), static_cast<int>(j)) = first[i] + second[j] + constant_;
  }
  for (FoldEdge& edge : problem_.edges) {
    if (edge.a != kept_[0]) transpose(edge);
    for (size_t i = 0; i < first.size(); ++i) {
      for (size_t j = 0; j < second.size(); ++j)
        result_(static_cast<int>(i), static_cast<int>(j)) +=
            edge.cost(edge.class_a[i], edge.class_b[j]);
    }
  }
}

std::vector<int> Folded::choices(const std::vector<int>& fixed) const {
  CAD_CHECK(fixed.size() == kept_.size(), "{} choices are fixed, {} nodes are kept", fixed.size(),
            kept_.size());
  std::vector<int> out(problem_.nodes.size(), -1);
  if (!branches_.empty()) {
    size_t entry = 0;
    if (!kept_.empty()) entry = static_cast<size_t>(fixed[0]);
    if (kept_.size() == 2)
      entry = entry * static_cast<size_t>(result_.columns) + static_cast<size_t>(fixed[1]);
    const int32_t best = best_branch_[entry];
    CAD_CHECK(best >= 0, "no choices are allowed");
    out = branches_[static_cast<size_t>(best)]->choices(fixed);
  }
  for (size_t k = 0; k < kept_.size(); ++k) out[static_cast<size_t>(kept_[k])] = fixed[k];
  for (size_t s = steps_.size(); s-- > 0;) {
    const Step& step = steps_[s];
    float least = kNever;
    int best = -1;
    for (size_t v = 0; v < step.cost.size(); ++v) {
      float cost = step.cost[v];
      for (const FoldEdge& edge : step.edges) {
        const int other = out[static_cast<size_t>(edge.b)];
        cost += edge.cost(edge.class_a[v], edge.class_b[static_cast<size_t>(other)]);
      }
      if (best < 0 || cost < least) {
        least = cost;
        best = static_cast<int>(v);
      }
    }
    out[static_cast<size_t>(step.node)] = best;
  }
  return out;
}

}  // namespace cad::planner
