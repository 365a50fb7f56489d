// planner/mesh.cc -- meshes over a cluster: which links the groups of every axis set cross, and
// all factorisations of a device count.
#include "planner/mesh.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "frontend/machine.h"

namespace cad::planner {
namespace {

static_assert(static_cast<size_t>(kMaxAxes) == frontend::kMostMeshAxes);

// How many members of each group one block (a pair, a node) holds: one number for all groups and
// blocks that have any, or 0 when they differ.
class Spread {
 public:
  void add(int members) {
    if (count_ == -1) count_ = members;
    if (count_ != members) count_ = 0;
  }
  [[nodiscard]] int count() const { return std::max(count_, 0); }

 private:
  int count_ = -1;
};

// Members of every group along `set`, ascending, one group after the other.
std::vector<int64_t> grouped_devices(const std::vector<Axis>& axes, AxisSet set) {
  std::vector<int64_t> outside{0};
  std::vector<int64_t> inside{0};
  int64_t stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    std::vector<int64_t>& offsets = (set >> i & 1) != 0 ? inside : outside;
    std::vector<int64_t> longer;
    for (int64_t at = 0; at < axes[i].size; ++at) {
      for (int64_t offset : offsets) longer.push_back(at * stride + offset);
    }
    offsets = std::move(longer);
    stride *= axes[i].size;
  }
  std::vector<int64_t> devices;
  devices.reserve(outside.size() * inside.size());
  for (int64_t base : outside) {
    for (int64_t offset : inside) devices.push_back(base + offset);
  }
  return devices;
}

Spread spread_over(const std::vector<int64_t>& devices, int group, int64_t block) {
  Spread spread;
  for (size_t first = 0; first < devices.size(); first += static_cast<size_t>(group)) {
    int run = 0;
    for (size_t i = first; i < first + static_cast<size_t>(group); ++i) {
      if (run > 0 && devices[i] / block != devices[i - 1] / block) {
        spread.add(run);
        run = 0;
      }
      ++run;
    }
    spread.add(run);
  }
  return spread;
}

std::vector<Level> levels_of(const Cluster& cluster, const std::vector<Axis>& axes, AxisSet set,
                             int group) {
  std::vector<Level> levels;
  if (group == 1) return levels;
  const std::vector<int64_t> devices = grouped_devices(axes, set);
  const auto add = [&levels](int size, const std::optional<Link>& link) {
    if (size == 1) return;
    CAD_CHECK(link.has_value(), "a cluster without the links that its devices need");
    levels.push_back({size, *link});
  };
  int in_pair = cluster.pairs ? spread_over(devices, group, 2).count() : 1;
  if (in_pair == 0) in_pair = 1;  // uneven: as if there were no pairs
  int in_node = spread_over(devices, group, cluster.per_node).count();
  if (in_node == 0) in_node = in_pair;  // uneven: everything beyond the pairs over the network
  add(in_pair, cluster.pairs);
  add(in_node / in_pair, cluster.intra);
  add(group / in_node, cluster.inter);
  return levels;
}

// The mesh with its axes in another order (levels moved along).
std::vector<std::vector<Level>> permuted_levels(const Mesh& mesh,
                                                const std::vector<size_t>& order) {
  std::vector<std::vector<Level>> levels(mesh.levels.size());
  for (size_t set = 0; set < levels.size(); ++set) {
    size_t from = 0;
    for (size_t i = 0; i < order.size(); ++i) from |= (set >> i & 1) << order[i];
    levels[set] = mesh.levels[from];
  }
  return levels;
}

// Whether b is a with its axes renamed: sizes and links of every axis set agree.
bool same_but_for_names(const Mesh& a, const Mesh& b) {
  if (a.axes.size() != b.axes.size()) return false;
  std::vector<size_t> order(a.axes.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    bool sizes = true;
    for (size_t i = 0; i < order.size(); ++i)
      sizes = sizes && a.axes[i].size == b.axes[order[i]].size;
    if (sizes && permuted_levels(b, order) == a.levels) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

void factor(int n, int left, std::vector<int>& prefix, std::vector<std::vector<int>>& found) {
  if (n == 1) {
    found.push_back(prefix);
    return;
  }
  if (left == 0) return;
  for (int size = 2; size <= n; ++size) {
    if (n % size != 0) continue;
    prefix.push_back(size);
    factor(n / size, left - 1, prefix, found);
    prefix.pop_back();
  }
}

Diagnostic bad_mesh(const std::vector<Axis>& axes, std::string why) {
  std::string text;
  for (const Axis& axis : axes)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  return make_error(DiagId::E0803, fmt::format("no mesh `{}`: {}", text, why), kExitUsage);
}

}  // namespace

int Mesh::devices() const {
  return size(static_cast<AxisSet>((1U << axes.size()) - 1));
}

int Mesh::size(AxisSet set) const {
  int product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if ((set >> i & 1) != 0) product *= axes[i].size;
  }
  return product;
}

std::string Mesh::str() const {
  std::string text;
  for (const Axis& axis : axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  }
  return text;
}

Result<Mesh> make_mesh(const Cluster& cluster, const std::vector<Axis>& axes) {
  if (axes.size() > kMaxAxes)
    return bad_mesh(
        axes, fmt::format("it has {} axes, at most {} are planned for", axes.size(), kMaxAxes));
  int64_t devices = 1;
  std::set<std::string> names;
  for (const Axis& axis : axes) {
    if (axis.size < 1) return bad_mesh(axes, fmt::format("the size of `{}` is below 1", axis.name));
    if (!names.insert(axis.name).second)
      return bad_mesh(axes, fmt::format("the axis `{}` is given twice", axis.name));
    devices *= axis.size;
    // stop before the product could overflow
    if (devices > std::max<int64_t>(cluster.devices(), int64_t{1} << 31)) break;
  }
  if (devices > cluster.devices()) {
    return make_error(DiagId::E0802,
                      fmt::format("the mesh needs {} devices, `{}` has {}", devices, cluster.name,
                                  cluster.devices()),
                      kExitUsage);
  }
  Mesh mesh;
  mesh.axes = axes;
  mesh.levels.resize(size_t{1} << axes.size());
  for (size_t set = 1; set < mesh.levels.size(); ++set) {
    const auto axis_set = static_cast<AxisSet>(set);
    mesh.levels[set] = levels_of(cluster, axes, axis_set, mesh.size(axis_set));
  }
  return mesh;
}

Result<std::vector<Axis>> parse_axes(const std::string& text) {
  const auto none = [&text](const std::string& why) {
    Diagnostic error =
        make_error(DiagId::E0803, fmt::format("no mesh `{}`: {}", text, why), kExitUsage);
    return error.help("write axes with their sizes, outermost first: `dp=2,tp=4`");
  };
  std::vector<Axis> axes;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const bool named = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                       std::all_of(name.begin(), name.end(), [](char c) {
                         return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                       });
    if (equals == std::string::npos || !named)
      return none(fmt::format("`{}` is no axis with a size", part));
    int size = 0;
    const char* const last = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data() + equals + 1, last, size);
    if (error != std::errc() || stop != last)
      return none(fmt::format("the size of `{}` is no whole number", name));
    if (size < 1) return none(fmt::format("the size of `{}` is below 1", name));
    axes.push_back({name, size});
  }
  return axes;
}

std::vector<std::vector<int>> factorisations(int n, int max_factors) {
  std::vector<std::vector<int>> found;
  std::vector<int> prefix;
  factor(n, max_factors, prefix, found);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return found;
}

Result<std::vector<Mesh>> meshes(const Cluster& cluster, int n, int max_axes) {
  static const char* const kNames[kMaxAxes] = {"x", "y", "z"};
  CAD_CHECK(n >= 1 && max_axes >= 1 && max_axes <= kMaxAxes, "meshes of no devices or axes");
  std::vector<Mesh> found;
  for (std::vector<int>& sizes : factorisations(n, max_axes)) {
    if (sizes.empty()) sizes.push_back(1);
    std::vector<Axis> axes;
    for (size_t i = 0; i < sizes.size(); ++i) axes.push_back({kNames[i], sizes[i]});
    CAD_TRY(mesh, make_mesh(cluster, axes));
    const bool known = std::any_of(found.begin(), found.end(), [&](const Mesh& other) {
      return same_but_for_names(other, mesh);
    });
    if (!known) found.push_back(std::move(mesh));
  }
  return found;
}

std::vector<int> fewer_devices(int n) {
  std::set<int, std::greater<>> numbers;
  for (int some = n / 2; some > 1; some /= 2) numbers.insert(some);
  for (int some = 2; some < n; some *= 2) numbers.insert(some);
  return {numbers.begin(), numbers.end()};
}

Result<std::vector<Mesh>> named_meshes(const Cluster& cluster, int n,
                                       const std::vector<std::string>& names) {
  CAD_CHECK(n >= 1 && !names.empty(), "meshes of no devices or axes");
  std::vector<std::string> order = names;
  std::sort(order.begin(), order.end());
  std::vector<Mesh> found;
  do {
    for (const std::vector<int>& sizes : factorisations(n, static_cast<int>(order.size()))) {
      // the factors go to any axes, in order; the rest have size 1
      std::vector<bool> large(order.size(), false);
      std::fill(large.end() - static_cast<std::ptrdiff_t>(sizes.size()), large.end(), true);
      do {
        std::vector<Axis> axes;
        size_t next = 0;
        for (size_t i = 0; i < order.size(); ++i)
          axes.push_back({order[i], large[i] ? sizes[next++] : 1});
        CAD_TRY(mesh, make_mesh(cluster, axes));
        const bool known = std::any_of(found.begin(), found.end(), [&](const Mesh& other) {
          std::vector<size_t> place;
          for (const Axis& axis : other.axes) {
            const auto at = std::find_if(mesh.axes.begin(), mesh.axes.end(),
                                         [&](const Axis& a) { return a.name == axis.name; });
            if (at->size != axis.size) return false;
            place.push_back(static_cast<size_t>(at - mesh.axes.begin()));
          }
          return permuted_levels(mesh, place) == other.levels;
        });
        if (!known) found.push_back(std::move(mesh));
      } while (std::next_permutation(large.begin(), large.end()));
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return found;
}

}  // namespace cad::planner
