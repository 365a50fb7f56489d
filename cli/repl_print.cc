// cli/repl_print.cc -- see repl_print.h.
#include "cli/repl_print.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/repl_graph.h"

namespace cad::cli {
namespace {

constexpr int64_t kWhole = 64;  // elements shown without cutting
constexpr int64_t kEdge = 3;    // of a cut dim, at either end
constexpr size_t kWidth = 88;

// How the elements of one tensor are written: the same way, so that they stand in columns.
struct Style {
  bool scientific = false;
  int decimals = 0;
  size_t width = 0;
};

std::string one(double value, ir::DType dtype, const Style& style) {
  if (dtype == ir::DType::kBool) return value != 0 ? "true" : "false";
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (style.scientific) return fmt::format("{:.3e}", value);
  std::string text = fmt::format("{:.{}f}", value, style.decimals);
  return text.find_first_not_of("-0.") == std::string::npos && text[0] == '-' ? text.substr(1)
                                                                              : text;
}

class Printer {
 public:
  explicit Printer(const ir::Tensor& tensor) : t_(tensor) {
    int64_t elements = 1;
    for (const int64_t extent : t_.extents) elements *= extent;
    cut_ = elements > kWhole;
    std::vector<double> shown;
    collect(0, 0, shown);
    choose(shown);
  }

  std::string text() {
    write(0, 0, 1);
    return out_ + "\n";
  }

 private:
  // Indices of a dim that are shown; -1 stands for those left out.
  [[nodiscard]] std::vector<int64_t> indices(size_t dim) const {
    const int64_t extent = t_.extents[dim];
    std::vector<int64_t> list;
    const bool cut = cut_ && extent > 2 * kEdge;
    for (int64_t i = 0; i < extent; ++i) {
      if (cut && i == kEdge) {
        list.push_back(-1);
        i = extent - kEdge;
      }
      list.push_back(i);
    }
    return list;
  }

  void collect(size_t dim, int64_t at, std::vector<double>& shown) const {
    if (dim == t_.extents.size()) {
      shown.push_back(t_.data[static_cast<size_t>(at)]);
      return;
    }
    for (const int64_t i : indices(dim)) {
      if (i >= 0) collect(dim + 1, at * t_.extents[dim] + i, shown);
    }
  }

  void choose(const std::vector<double>& shown) {
    double most = 0, least = INFINITY;
    for (const double value : shown) {
      if (!std::isfinite(value) || value == 0) continue;
      most = std::max(most, std::abs(value));
      least = std::min(least, std::abs(value));
    }
    if (ir::is_float(t_.dtype)) {
      style_.scientific = most >= 1e6 || (most > 0 && most < 1e-3);
      // As few decimals as show the same to the fourth.
      for (const double value : shown) {
        if (!std::isfinite(value)) continue;
        while (style_.decimals < 4 &&
               std::abs(value - std::round(value * std::pow(10, style_.decimals)) /
                                    std::pow(10, style_.decimals)) > 5e-6)
          ++style_.decimals;
      }
    }
    for (const double value : shown)
      style_.width = std::max(style_.width, one(value, t_.dtype, style_).size());
  }

  void write(size_t dim, int64_t at, size_t indent) {
    out_ += '[';
    const bool last = dim + 1 == t_.extents.size();
    size_t column = indent;
    bool first = true;
    for (const int64_t i : indices(dim)) {
      if (!last) {
        if (!first)
          out_ += std::string(t_.extents.size() - 1 - dim, '\n') + std::string(indent, ' ');
        if (i < 0) {
          out_ += "..";
        } else {
          write(dim + 1, at * t_.extents[dim] + i, indent + 1);
        }
      } else {
        const std::string text =
            i < 0 ? ".."
                  : one(t_.data[static_cast<size_t>(at * t_.extents[dim] + i)], t_.dtype, style_);
        const std::string padded =
            i < 0 ? text : std::string(style_.width - text.size(), ' ') + text;
        if (!first && column + padded.size() + 2 > kWidth) {
          out_ += "\n" + std::string(indent, ' ');
          column = indent;
        } else if (!first) {
          out_ += "  ";
          column += 2;
        }
        out_ += padded;
        column += padded.size();
      }
      first = false;
    }
    out_ += ']';
  }

  const ir::Tensor& t_;
  bool cut_ = false;
  Style style_;
  std::string out_;
};

}  // namespace

std::string element_text(double value, ir::DType dtype) {
  if (dtype == ir::DType::kBool) return value != 0 ? "true" : "false";
  if (dtype == ir::DType::kI32) return fmt::format("{:.0f}", value);
  return fmt::format("{:.7g}", value == 0 ? 0 : value);  // no "-0"
}

std::string tensor_text(const NamedTensor& tensor) {
  const ir::Tensor& t = tensor.tensor;
  if (t.extents.empty()) return element_text(t.data[0], t.dtype) + "\n";
  ir::Bindings sizes;
  for (size_t i = 0; i < tensor.dims.size(); ++i) sizes[tensor.dims[i]] = t.extents[i];
  const std::string head = type_text(t.dtype, tensor.dims, sizes) + "\n";
  return head + Printer(t).text();
}

}  // namespace cad::cli
