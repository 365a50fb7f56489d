// backend/optimizer_adafactor.cc -- Adafactor (Shazeer and Stern, 2018) in PyTorch's form: second
// moments of a matrix (the last two dims) kept as a row and a column of means, updates scaled by
// the parameter's own root mean square and clipped to d. Each iteration of a `repeat` is a
// parameter of its own. It is not elementwise, hence written out here instead of in stdlib.
#include <algorithm>
#include <cmath>

#include "backend/cpu/thread_pool.h"
#include "backend/optimizer.h"

namespace cad::backend {
namespace {

double constant(const std::map<std::string, double>& constants, const char* name,
                double otherwise) {
  const auto found = constants.find(name);
  return found == constants.end() ? otherwise : found->second;
}

// One iteration: `matrices` of rows x columns, or a vector (columns == 0).
struct Shape {
  int64_t matrices = 1, rows = 1, columns = 0;
  explicit Shape(const Parameter& p) {
    if (p.extents.size() < 2) {
      rows = p.optimizer.elements();
      return;
    }
    columns = p.extents.back();
    rows = p.extents[p.extents.size() - 2];
    matrices = rows * columns == 0 ? 0 : p.optimizer.elements() / (rows * columns);
  }
};

struct Slice {
  float* values;
  const float* gradient;
  float* row;  // or the whole second moment of a vector
  float* column;
};

void update_moments(const Slice& s, const Shape& shape, double scale, double fresh) {
  const auto blend = [&](float& moment, double now) {
    moment = static_cast<float>(moment + fresh * (now - moment));
  };
  if (shape.columns == 0) {
    for (int64_t i = 0; i < shape.rows; ++i) {
      const double g = scale * static_cast<double>(s.gradient[i]);
      blend(s.row[i], g * g);
    }
    return;
  }
  for (int64_t m = 0; m < shape.matrices; ++m) {
    const float* g = s.gradient + m * shape.rows * shape.columns;
    std::vector<double> columns(static_cast<size_t>(shape.columns), 0.0);
    for (int64_t r = 0; r < shape.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < shape.columns; ++c) {
        const double value = scale * static_cast<double>(g[r * shape.columns + c]);
        sum += value * value;
        columns[static_cast<size_t>(c)] += value * value;
      }
      blend(s.row[m * shape.rows + r], sum / static_cast<double>(shape.columns));
    }
    for (int64_t c = 0; c < shape.columns; ++c) {
      blend(s.column[m * shape.columns + c],
            columns[static_cast<size_t>(c)] / static_cast<double>(shape.rows));
    }
  }
}

// f(index, unclipped update) for every element.
template <class F>
void each_update(const Slice& s, const Shape& shape, double scale, double eps, F&& f) {
  if (shape.columns == 0) {
    for (int64_t i = 0; i < shape.rows; ++i) {
      f(i, scale * static_cast<double>(s.gradient[i]) /
               std::sqrt(std::max<double>(s.row[i], eps * eps)));
    }
    return;
  }
  for (int64_t m = 0; m < shape.matrices; ++m) {
    double mean = 0;
    for (int64_t r = 0; r < shape.rows; ++r) mean += static_cast<double>(s.row[m * shape.rows + r]);
    mean = std::max(mean / static_cast<double>(shape.rows), eps);
    for (int64_t r = 0; r < shape.rows; ++r) {
      const double row = static_cast<double>(s.row[m * shape.rows + r]) / mean;
      for (int64_t c = 0; c < shape.columns; ++c) {
        const int64_t i = (m * shape.rows + r) * shape.columns + c;
        const double estimate =
            std::max(row * static_cast<double>(s.column[m * shape.columns + c]), eps * eps);
        f(i, scale * static_cast<double>(s.gradient[i]) / std::sqrt(estimate));
      }
    }
  }
}

}  // namespace

void add_adafactor_states(Segment& segment, const Parameter& p) {
  const auto add = [&](const char* name, std::vector<int64_t> extents) {
    OptimizerState state;
    state.name = name;
    for (const int64_t size : extents) state.elements *= size;
    state.elements *= segment.iterations;
    state.shard = whole_shard(extents);
    state.extents = std::move(extents);
    segment.states.push_back(std::move(state));
  };
  if (p.extents.size() < 2) return add("variance", p.extents);
  std::vector<int64_t> row = p.extents, column = p.extents;
  row.pop_back();
  column.erase(column.end() - 2);
  add("row_variance", row);
  add("column_variance", column);
}

void adafactor_update(const Segment& segment, const Parameter& p, float* values,
                      const float* gradient, double scale, double rate, double decay,
                      const std::map<std::string, double>& constants, int64_t count,
                      ThreadPool& pool) {
  const double eps1 = constant(constants, "eps1", 0x1.0p-23),
               eps2 = constant(constants, "eps2", 1e-3);
  const double clip = constant(constants, "d", 1.0);
  const double fresh =
      std::pow(static_cast<double>(count), constant(constants, "beta2_decay", -0.8));
  const double rho = std::min(rate, 1.0 / std::sqrt(static_cast<double>(count)));
  const Shape shape(p);
  const int64_t n = p.optimizer.elements();
  if (n == 0) return;
  pool.dynamic(segment.iterations, [&](int64_t i, int) {
    Slice s{values + i * n, gradient + i * n, nullptr, nullptr};
    s.row = reinterpret_cast<float*>(segment.states[0].data) +
            i * (segment.states[0].elements / segment.iterations);
    if (segment.states.size() > 1) {
      s.column = reinterpret_cast<float*>(segment.states[1].data) +
                 i * (segment.states[1].elements / segment.iterations);
    }
    double square = 0;
    for (int64_t k = 0; k < n; ++k)
      square += static_cast<double>(s.values[k]) * static_cast<double>(s.values[k]);
    const double alpha = std::max(eps2, std::sqrt(square / static_cast<double>(n))) * rho;
    update_moments(s, shape, scale, fresh);
    double norm = 0;
    each_update(s, shape, scale, eps1, [&](int64_t, double u) { norm += u * u; });
    const double denominator = std::max(1.0, std::sqrt(norm / static_cast<double>(n)) / clip);
    each_update(s, shape, scale, eps1, [&](int64_t k, double u) {
      const double kept = static_cast<double>(s.values[k]) * (1.0 - rate * decay);
      s.values[k] = static_cast<float>(kept - alpha / denominator * u);
    });
  });
}

}  // namespace cad::backend
