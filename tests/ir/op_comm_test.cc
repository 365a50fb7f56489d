// tests/ir/op_comm_test.cc -- collectives: shape rules by constraint, what each member gets, and
// gradients against those of the same computation on one device.
#include "ir/autodiff.h"
#include "ir/passes.h"
#include "tests/ir/ir_testing.h"
#include "tests/ir/spmd_devices.h"

namespace cad::ir {
namespace {

const std::vector<std::vector<int64_t>> kMeshes{{2}, {4}, {2, 2}, {2, 2, 2}, {3}, {1, 3}};

void set_mesh(Graph& g, const std::vector<int64_t>& sizes) {
  static const char* const kNames[] = {"a", "b", "c"};
  for (size_t i = 0; i < sizes.size(); ++i) g.mesh.push_back({kNames[i], sizes[i]});
}
uint32_t all_axes(const Graph& g) {
  return (1U << g.mesh.size()) - 1;
}
Attrs comm(uint32_t axes, DimId dim = {}, DimId to = {}, DimId window = {}) {
  Attrs attrs;
  attrs.axes = axes;
  attrs.dim = dim;
  attrs.to = to;
  attrs.window = window;
  return attrs;
}
Attrs reduces(uint32_t axes, Reduction reduction) {
  Attrs attrs = comm(axes);
  attrs.reduction = reduction;
  return attrs;
}

// (P1), (P2) of ir/move_parts.cc
TEST(Comm, PartsThatMove) {
  Bench t;
  set_mesh(t.g, {2, 3});
  const auto dim = [&](const char* name, int64_t size, DimId whole, std::vector<int8_t> axes) {
    const DimId id = t.g.add_dim(name, size);
    t.g.dims[static_cast<size_t>(id.index)].whole = whole;
    t.g.dims[static_cast<size_t>(id.index)].axes = std::move(axes);
    return id;
  };
  const DimId R = t.g.add_dim("R", 5), C = t.g.add_dim("C", 7);
  const DimId r0 = dim("R/a", 3, R, {0}), r1 = dim("R/b", 2, R, {1}), c0 = dim("C/a", 4, C, {0}),
              c1 = dim("C/b", 3, C, {1}), r01 = dim("R/a/b", 1, R, {0, 1}),
              r10 = dim("R/b/a", 1, R, {1, 0});
  Input input;
  input.path = "x";
  const ValueId x = t.b.input(input, Type{DType::kF32, {r0, c1}});
  input.path = "y";
  const ValueId y = t.b.input(input, Type{DType::kF32, {r01, C}});
  const auto parts = [](uint32_t axes, std::vector<DimGroup> groups) {
    Attrs attrs;
    attrs.axes = axes;
    attrs.groups = std::move(groups);
    return attrs;
  };
  const auto type = [&](ValueId v, const Attrs& attrs) {
    return type_of(t, t.b.make(Op::kAllToAll, {v}, attrs));
  };
  EXPECT_EQ(type(x, parts(3, {{{r0}, {r1}}, {{c1}, {c0}}})), "[R/b, C/a]");
  EXPECT_EQ(type(x, parts(1, {{{r0}, {R}}, {{c1}, {dim("C/b/a", 2, C, {1, 0})}}})), "[R, C/b/a]");
  EXPECT_EQ(type(y, parts(3, {{{r01}, {r10}}})), "[R/b/a, C]");
  EXPECT_EQ(type(y, parts(2, {{{r01}, {r0}}, {{C}, {c1}}})), "[R/a, C/b]");
  // not of one dim; no dim of x; axes of another group; an axis that nobody gives up, or two take
  for (const Attrs& wrong :
       {parts(3, {{{r0}, {c0}}, {{c1}, {r1}}}), parts(3, {{{r1}, {r0}}}),
        parts(1, {{{r0}, {r1}}, {{c1}, {c0}}}), parts(3, {{{r0}, {r01}}}), parts(1, {{{r0}, {R}}}),
        parts(1, {{{r0}, {r0}}}), parts(3, {{{r0, c1}, {r1, c0}}}),
        parts(3, {{{r0}, {r10}}, {{c1}, {c0}}})}) {
    EXPECT_NE(error_of(t, Op::kAllToAll, {x}, wrong), "fine") << wrong.axes;
  }
}

TEST(Comm, ShapesAndConstraints) {
  Bench t;
  set_mesh(t.g, {2, 3});
  const DimId two = t.g.add_dim("two", 2), three = t.g.add_dim("three", 3),
              six = t.g.add_dim("six", 6), B = t.dim("B"), D = t.dim("D");
  const ValueId x = t.x("x", {"B", "D"}), c = t.bools("c", {"B"});
  const ValueId y = t.b.make(Op::kAllGather, {x}, comm(1, D, two));
  EXPECT_EQ(type_of(t, y), "[B, two, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kAllGather, {x}, comm(2, {}, three))), "[three, B, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kAllGather, {x}, comm(3, B, six))), "[six, B, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kReduceScatter, {y}, comm(1, two))), "[B, D]");
  const DimId other = t.g.add_dim("other", 2);
  EXPECT_EQ(type_of(t, t.b.make(Op::kAllToAll, {y}, comm(1, two, other, B))), "[other, B, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kAllToAll, {y}, comm(1, two, other, D))), "[B, other, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kAllToAll, {y}, comm(1, two, two))), "[two, B, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kAllReduce, {x}, reduces(2, Reduction::kMax))), "[B, D]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kAxisIndex, {}, comm(3))), "i32[]");
  // (C1)
  for (const uint32_t axes : {0U, 4U, 7U, 1U << 31}) {
    EXPECT_EQ(error_of(t, Op::kAxisIndex, {}, comm(axes)).substr(0, 5), "other") << axes;
    EXPECT_EQ(error_of(t, Op::kAllReduce, {x}, comm(axes)).substr(0, 5), "other") << axes;
    EXPECT_EQ(error_of(t, Op::kAllGather, {x}, comm(axes, D, two)).substr(0, 5), "other") << axes;
  }
  // (C2)
  EXPECT_EQ(error_of(t, Op::kAllReduce, {c}, comm(1)),
            "dtype: a number type is wanted, this is `bool`");
  const ValueId cs = t.b.make(Op::kAllGather, {c}, comm(1, {}, two));
  EXPECT_EQ(error_of(t, Op::kReduceScatter, {cs}, comm(1, two)).substr(0, 5), "dtype");
  // (C3)
  EXPECT_EQ(error_of(t, Op::kReduceScatter, {x}, comm(1, two)),
            "missing-dim: `two` is not among the dims of [B, D]");
  EXPECT_EQ(error_of(t, Op::kReduceScatter, {y}, comm(2, two)),
            "size-mismatch: `two` and the number of devices: 2 is not 3");
  EXPECT_EQ(error_of(t, Op::kAllToAll, {y}, comm(2, two, three)).substr(0, 13), "size-mismatch");
  // (C4), (C5)
  EXPECT_EQ(error_of(t, Op::kAllGather, {x}, comm(1, {}, three)),
            "size-mismatch: `three` and the number of devices: 3 is not 2");
  EXPECT_EQ(error_of(t, Op::kAllGather, {y}, comm(1, {}, two)),
            "duplicate-dim: the result would hold `two` twice");
  EXPECT_EQ(error_of(t, Op::kAllGather, {x}, comm(1, three, two)).substr(0, 11), "missing-dim");
  EXPECT_EQ(error_of(t, Op::kAllToAll, {y}, comm(1, two, other, two)).substr(0, 11), "missing-dim");
}

TEST(Comm, TextRoundTrip) {
  Bench t;
  set_mesh(t.g, {2, 3});
  t.g.mesh[1].name = "model part";
  const DimId B = t.g.add_dim("B", 7);
  Dim part;
  part.name = "B.1";
  part.size = 2;
  part.whole = B;
  part.axes = {1, 0};
  t.g.dims.push_back(part);
  const DimId two = t.g.add_dim("two", 2);
  const ValueId x = t.x("x", {"B.1"});
  const ValueId y = t.b.make(Op::kAllGather, {x}, comm(1, {}, two));
  t.output(t.b.make(Op::kAllReduce, {y}, reduces(3, Reduction::kMin)), "y");
  t.output(t.b.make(Op::kAxisIndex, {}, comm(2)), "i");
  EXPECT_TRUE(verify(t.g).empty());
  const std::string text = print(t.g);
  EXPECT_NE(text.find("axis \"model part\" = 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("dim B.1 = \"2\" part of B over [\"model part\", a]\n"), std::string::npos);
  EXPECT_NE(text.find("axes=[a, \"model part\"] reduction=min"), std::string::npos);
  const auto again = parse_graph(text);
  ASSERT_TRUE(static_cast<bool>(again)) << again.error().message;
  EXPECT_EQ(print(*again), text);
  EXPECT_EQ(again->mesh, t.g.mesh);
  EXPECT_EQ(again->dims[1].whole, B);
  EXPECT_EQ(again->dims[1].axes, part.axes);
  EXPECT_FALSE(parse_graph("graph\naxis a = 2\ndim B = \"2\"\ndim C = \"1\" part of B over [b]\n"));
}

TEST(Comm, VerifierOfMeshes) {
  const auto faults = [](auto&& change) {
    Graph g;
    g.mesh = {{"a", 2}, {"b", 3}};
    g.add_dim("B", 7);
    Dim part;
    part.name = "part";
    part.size = 2;
    part.whole = DimId{0};
    part.axes = {0, 1};
    g.dims.push_back(part);
    change(g);
    const std::vector<std::string> all = verify(g);
    return all.empty() ? std::string() : all[0];
  };
  EXPECT_EQ(faults([](Graph&) {}), "");
  EXPECT_EQ(faults([](Graph& g) { g.mesh[1].name = "a"; }), "V9: two axes are named `a`");
  EXPECT_EQ(faults([](Graph& g) { g.mesh[0].size = 0; }), "V9: axis `a` has size 0");
  EXPECT_EQ(faults([](Graph& g) { g.dims[1].size = 3; }),
            "V9: dim `part` is 3, not a part of 7 by its axes");
  EXPECT_EQ(faults([](Graph& g) { g.dims[1].whole = {}; }),
            "V9: dim `part` is split but no part of a dim");
  EXPECT_EQ(faults([](Graph& g) { g.dims[1].whole = DimId{1}; }),
            "V9: dim `part` is no part of a whole dim");
  EXPECT_EQ(faults([](Graph& g) { g.dims[1].axes = {2}; }),
            "V9: dim `part` is split by axis 2, which the mesh lacks");
  EXPECT_EQ(faults([](Graph& g) {
              g.dims[1].axes = {0, 0};
            }),
            "V9: dim `part` is split twice by axis 0");
}

// A tensor of its own for every device.
std::vector<Tensor> different(Bench& t, const Type& type, int64_t devices) {
  std::vector<Tensor> all;
  for (int64_t d = 0; d < devices; ++d) {
    Tensor x = filled(t.g, type, t.bindings, 0);
    for (double& v : x.data) v = std::floor(t.random() * 16) - 8;
    all.push_back(std::move(x));
  }
  return all;
}

PerDevice one_input(const std::vector<Tensor>& tensors) {
  PerDevice inputs;
  for (const Tensor& x : tensors) inputs.push_back({x});
  return inputs;
}

// Devices that agree with `device` on all axes but these, in order.
std::vector<int64_t> members(const Graph& g, uint32_t axes, int64_t device) {
  std::vector<int64_t> found;
  const std::vector<int> own = coordinates_of(g, device);
  for (int64_t other = 0; other < mesh_size(g, all_axes(g)); ++other) {
    const std::vector<int> at = coordinates_of(g, other);
    bool same = true;
    for (size_t a = 0; a < at.size(); ++a) same = same && ((axes >> a & 1) != 0 || at[a] == own[a]);
    if (same) found.push_back(other);
  }
  return found;
}

// Every op over every set of axes of every mesh, element by element.
TEST(Comm, WhatMembersGet) {
  for (const auto& mesh : kMeshes) {
    for (uint32_t axes = 1; axes < 1U << mesh.size(); ++axes) {
      SCOPED_TRACE(fmt::format("mesh of {} axes, set {}", mesh.size(), axes));
      Bench t;
      set_mesh(t.g, mesh);
      t.bindings = {{"B", 3}, {"D", 2}};
      const int64_t n = mesh_size(t.g, axes), devices = mesh_size(t.g, all_axes(t.g));
      const DimId G = t.g.add_dim("G", n), H = t.g.add_dim("H", n), D = t.dim("D");
      const ValueId x = t.x("x", {"B", "G", "D"});
      for (Reduction r : {Reduction::kSum, Reduction::kMax, Reduction::kMin})
        t.output(t.b.make(Op::kAllReduce, {x}, reduces(axes, r)), fmt::format("r{}", int(r)));
      t.output(t.b.make(Op::kAllGather, {x}, comm(axes, D, H)), "gather");
      t.output(t.b.make(Op::kReduceScatter, {x}, comm(axes, G)), "scatter");
      t.output(t.b.make(Op::kAllToAll, {x}, comm(axes, G, H, D)), "exchange");
      t.output(t.b.make(Op::kAllToAll, {x}, comm(axes, G, H)), "front");
      t.output(t.b.make(Op::kAxisIndex, {}, comm(axes)), "index");
      ASSERT_TRUE(verify(t.g).empty()) << verify(t.g)[0];
      const std::vector<Tensor> given = different(t, t.g.type(x), devices);
      EvalContext context;
      context.bindings = t.bindings;
      const PerDevice got = SpmdDevices(t.g).run(one_input(given), context);
      for (int64_t device = 0; device < devices; ++device) {
        const std::vector<int64_t> group = members(t.g, axes, device);
        const auto own = std::find(group.begin(), group.end(), device) - group.begin();
        const std::vector<Tensor>& r = got[static_cast<size_t>(device)];
        const auto at = [&](int64_t member, int64_t b, int64_t g, int64_t d) {
          const auto other = static_cast<size_t>(group[static_cast<size_t>(member)]);
          return given[other].data[static_cast<size_t>((b * n + g) * 2 + d)];
        };
        EXPECT_EQ(r[7].data[0], static_cast<double>(own));
        size_t k = 0;
        for (int64_t b = 0; b < 3; ++b) {
          for (int64_t g = 0; g < n; ++g) {
            for (int64_t d = 0; d < 2; ++d, ++k) {
              double sum = 0, most = -99, least = 99, here = 0;
              for (int64_t m = 0; m < n; ++m) {
                sum += at(m, b, g, d);
                most = std::max(most, at(m, b, g, d));
                least = std::min(least, at(m, b, g, d));
                here += at(m, b, own, d);
                ASSERT_EQ(r[3].data[static_cast<size_t>(((b * n + g) * n + m) * 2 + d)],
                          at(m, b, g, d));
              }
              ASSERT_EQ(r[0].data[k], sum);
              ASSERT_EQ(r[1].data[k], most);
              ASSERT_EQ(r[2].data[k], least);
              ASSERT_EQ(r[4].data[static_cast<size_t>(b * 2 + d)], here);
              ASSERT_EQ(r[5].data[k], at(g, b, own, d));
              ASSERT_EQ(r[6].data[static_cast<size_t>((g * 3 + b) * 2 + d)], at(g, b, own, d));
            }
          }
        }
      }
    }
  }
}

// The loss of all devices together: each one's y times fixed coefficients, squared, summed.
struct GradientCase {
  const char* name;
  std::function<ValueId(Bench& t, ValueId x, uint32_t axes)> build;
};

double total_loss(const Graph& g, const PerDevice& inputs, const EvalContext& context) {
  double sum = 0;
  for (const std::vector<Tensor>& results : SpmdDevices(g).run(inputs, context))
    sum += results[0].data[0];
  return sum;
}

// d(sum of all devices' losses) / d(one device's x), by each device's own backward graph with seed
// 1, against central differences.
TEST(Comm, GradientsAgainstCentralDifferences) {
  const auto dim = [](Bench& t, const char* name) { return t.g.find_dim(name); };
  const std::vector<GradientCase> cases{
      {"sum",
       [](Bench& t, ValueId x, uint32_t axes) {
         return t.b.make(Op::kAllReduce, {x}, reduces(axes, Reduction::kSum));
       }},
      {"max",
       [](Bench& t, ValueId x, uint32_t axes) {
         return t.b.make(Op::kAllReduce, {x}, reduces(axes, Reduction::kMax));
       }},
      {"min",
       [](Bench& t, ValueId x, uint32_t axes) {
         return t.b.make(Op::kAllReduce, {x}, reduces(axes, Reduction::kMin));
       }},
      {"gather",
       [&](Bench& t, ValueId x, uint32_t axes) {
         return t.b.make(Op::kAllGather, {x}, comm(axes, dim(t, "D"), dim(t, "H")));
       }},
      {"scatter",
       [&](Bench& t, ValueId x, uint32_t axes) {
         return t.b.make(Op::kReduceScatter, {x}, comm(axes, dim(t, "G")));
       }},
      {"exchange",
       [&](Bench& t, ValueId x, uint32_t axes) {
         return t.b.make(Op::kAllToAll, {x}, comm(axes, dim(t, "G"), dim(t, "H")));
       }},
      {"exchange_last",  // no dim follows G: it comes back by a transpose
       [&](Bench& t, ValueId x, uint32_t axes) {
         const ValueId turned = t.b.ordered(x, t.dims({"B", "D", "G"}));
         return t.b.make(Op::kAllToAll, {turned},
                         comm(axes, dim(t, "G"), dim(t, "H"), dim(t, "D")));
       }},
      {"scatter_last", [&](Bench& t, ValueId x, uint32_t axes) {
         const ValueId turned = t.b.ordered(x, t.dims({"B", "D", "G"}));
         return t.b.make(Op::kReduceScatter, {turned}, comm(axes, dim(t, "G")));
       }}};
  for (const GradientCase& c : cases) {
    for (const auto& mesh : {std::vector<int64_t>{2}, {4}, {2, 2}, {2, 2, 2}}) {
      SCOPED_TRACE(fmt::format("{} on {} axes", c.name, mesh.size()));
      Bench t;
      set_mesh(t.g, mesh);
      // the first axis, and the outer two where there are some: members are no neighbours
      const uint32_t axes = mesh.size() == 3 ? 5 : 1;
      t.bindings = {{"B", 2}, {"D", 2}};
      const int64_t devices = mesh_size(t.g, all_axes(t.g));
      t.g.add_dim("G", mesh_size(t.g, axes));
      t.g.add_dim("H", mesh_size(t.g, axes));
      t.dims({"B", "D"});
      const ValueId x = t.x("x", {"B", "G", "D"});
      const ValueId y = c.build(t, x, axes);
      Input other;
      other.kind = InputKind::kData;
      other.path = "w";
      const ValueId w = t.b.input(other, Type(t.g.type(y)));
      const ValueId term = t.b.mul(t.b.mul(y, y), w);
      t.output(t.b.sum(term, Dims(t.g.type(term).dims)), "loss");
      PerDevice inputs = one_input(different(t, t.g.type(x), devices));
      for (auto& list : inputs) {
        for (double& v : list[0].data) v += t.random() / 4;  // no ties
      }
      const std::vector<Tensor> coefficients = different(t, t.g.type(w), devices);
      for (size_t d = 0; d < inputs.size(); ++d) inputs[d].push_back(coefficients[d]);
      EvalContext context;
      context.bindings = t.bindings;
      const Graph back = differentiate(t.g, output_value(t.g, "loss"));
      ASSERT_TRUE(verify(back).empty()) << verify(back)[0];
      const PerDevice got = SpmdDevices(back).run(inputs, context);
      for (const size_t device : {size_t{0}, inputs.size() - 1}) {
        for (size_t k = device % 2; k < inputs[device][0].data.size(); k += 3) {
          PerDevice up = inputs, down = inputs;
          up[device][0].data[k] += 1e-4;
          down[device][0].data[k] -= 1e-4;
          const double slope =
              (total_loss(t.g, up, context) - total_loss(t.g, down, context)) / 2e-4;
          ASSERT_NEAR(got[device][1].data[k], slope, 1e-5 * (1 + std::abs(slope)))
              << "device " << device << " element " << k;
        }
      }
    }
  }
}

// Equal extremes: the gradient goes to one member, the first.
TEST(Comm, TiesGoToTheFirstMember) {
  Bench t;
  set_mesh(t.g, {3});
  const ValueId x = t.x("x", {});
  const ValueId y = t.b.make(Op::kAllReduce, {x}, reduces(1, Reduction::kMax));
  t.output(y, "loss");
  const Graph back = differentiate(t.g, y);
  EvalContext context;
  Tensor low, high;
  low.data = {1};
  high.data = {2};
  const PerDevice got = SpmdDevices(back).run({{low}, {high}, {high}}, context);
  EXPECT_EQ(got[0][1].data[0], 0);
  EXPECT_EQ(got[1][1].data[0], 3);  // the losses of three devices
  EXPECT_EQ(got[2][1].data[0], 0);
}

size_t count_of(const Graph& g, Op op) {
  size_t count = 0;
  for (const Region& region : g.regions) {
    for (NodeId id : region.nodes) count += g.node(id).op == op ? 1 : 0;
  }
  return count;
}

// Every device runs the same passes: equal collectives are one, unused ones go, on all.
TEST(Comm, PassesKeepDevicesInStep) {
  Bench t;
  set_mesh(t.g, {2, 2});
  const ValueId x = t.x("x", {"B"});
  const auto reduced = [&](uint32_t axes, Reduction r) {
    return t.b.make(Op::kAllReduce, {x}, reduces(axes, r));
  };
  t.output(t.b.add(reduced(1, Reduction::kSum), reduced(1, Reduction::kSum)), "same");
  t.output(t.b.add(reduced(2, Reduction::kSum), reduced(1, Reduction::kMax)), "others");
  reduced(3, Reduction::kSum);  // nobody reads it
  const Graph g = run_passes(t.g, passes_after_autodiff());
  EXPECT_EQ(count_of(t.g, Op::kAllReduce), 5U);
  EXPECT_EQ(count_of(g, Op::kAllReduce), 3U);
  EXPECT_EQ(g.mesh, t.g.mesh);
}

// A sum of products that devices agree on in every iteration stays in the loop: products can be
// hoisted, collectives cannot.
TEST(Comm, CollectivesStayInTheirLoop) {
  Bench t;
  set_mesh(t.g, {2});
  t.bindings = {{"L", 3}, {"B", 1}, {"D", 4}, {"F", 4}};
  for (const char* name : {"L", "B", "D", "F"}) t.g.add_dim(name, t.bindings.at(name));
  Loop loop;
  loop.body = t.g.add_region(NodeId{});
  loop.dim = t.dim("L");
  loop.carries = 1;
  loop.scanned = 2;
  t.g.add_argument(loop.body, {DType::kI32, {}});
  const ValueId sum = t.g.add_argument(loop.body, t.type(DType::kF32, {"D", "F"}));
  const ValueId p = t.g.add_argument(loop.body, t.type(DType::kF32, {"B", "D"}));
  const ValueId q = t.g.add_argument(loop.body, t.type(DType::kF32, {"B", "F"}));
  Builder body(t.g, loop.body);
  Attrs over_rows;
  over_rows.dims = t.dims({"B"});
  const ValueId product = body.make(Op::kContract, {p, q}, over_rows);
  const ValueId agreed = body.make(Op::kAllReduce, {product}, comm(1));
  t.g.region(loop.body).results = {body.add(sum, agreed)};
  t.output(t.b.repeat(
      loop, {t.x("s", {"D", "F"}), t.x("p", {"L", "B", "D"}), t.x("q", {"L", "B", "F"})})[0]);
  const Graph g = run_passes(t.g, passes_after_autodiff());
  EXPECT_EQ(count_of(g, Op::kAllReduce), 1U);
  for (NodeId id : g.regions[0].nodes) EXPECT_FALSE(is_collective(g.node(id).op));
}

// The number of a device costs nothing: loops compute it themselves.
TEST(Comm, LoopsComputeTheDevicesNumber) {
  Bench t;
  set_mesh(t.g, {2});
  Loop loop;
  loop.body = t.g.add_region(NodeId{});
  loop.dim = t.dim("L");
  loop.carries = loop.invariants = 1;
  t.g.add_argument(loop.body, {DType::kI32, {}});
  const ValueId h = t.g.add_argument(loop.body, {DType::kI32, {}});
  const ValueId k = t.g.add_argument(loop.body, {DType::kI32, {}});
  t.g.region(loop.body).results = {Builder(t.g, loop.body).add(h, k)};
  const ValueId own = t.b.mul(t.b.make(Op::kAxisIndex, {}, comm(1)), t.number(3));
  t.output(t.b.repeat(loop, {t.number(1), own})[0]);
  const Graph g = sink_constants(t.g);
  ASSERT_TRUE(verify(g).empty()) << verify(g)[0];
  for (const Node& n : g.nodes) {
    if (n.op == Op::kRepeat) {
      EXPECT_EQ(n.loop.invariants, 0);
    }
    if (n.op == Op::kAxisIndex) {
      EXPECT_NE(n.region.index, 0);
    }
  }
}

TEST(Comm, AttachSendsTheGradientElsewhere) {
  Bench t;
  t.bindings = {{"D", 2}};
  const ValueId x = t.x("x", {"D"}), z = t.x("z", {"D"});
  const ValueId y = t.b.make(Op::kAttach, {x, z});
  EXPECT_EQ(type_of(t, y), "[D]");
  EXPECT_NE(error_of(t, Op::kAttach, {x, t.x("other", {"T"})}), "fine");
  const ValueId loss = t.b.sum(t.b.mul(y, y), t.dims({"D"}));
  t.output(loss, "loss");
  t.bindings["T"] = 1;
  t.g = differentiate(t.g, loss);
  const std::vector<Tensor> got = t.run();
  EXPECT_EQ(t.g.outputs[1].name, "grad:x");
  EXPECT_EQ(got[1].data, (std::vector<double>{0, 0}));
  EXPECT_EQ(got[2].data, (std::vector<double>{2 * t.values[0].data[0], 2 * t.values[0].data[1]}));
}

// In a loop's backward body no collective of the forward one runs again; `@recompute` may say so.
TEST(Comm, BackwardBodiesDoNotRepeatCollectives) {
  for (const bool again : {false, true}) {
    Bench t;
    set_mesh(t.g, {2});
    t.bindings = {{"L", 3}, {"D", 2}};
    const DimId L = t.dim("L");
    const ValueId x = t.x("x", {"D"});
    Loop loop;
    loop.body = t.g.add_region(NodeId{});
    loop.dim = L;
    loop.carries = 1;
    t.g.add_argument(loop.body, {DType::kI32, {}});
    const ValueId h = t.g.add_argument(loop.body, t.g.type(x));
    Builder body(t.g, loop.body);
    const ValueId s = body.make(Op::kAllReduce, {body.unary(Op::kSin, h)}, comm(1));
    if (again) t.g.value(s).saving = Saving::kRecompute;
    t.g.region(loop.body).results = {body.unary(Op::kTanh, body.mul(s, s))};
    const ValueId out = t.b.repeat(loop, {x})[0];
    const ValueId sum = t.b.sum(out, t.dims({"D"}));
    t.output(sum, "loss");
    DifferentiateOptions options;
    options.save.bindings = t.bindings;
    const Graph back = differentiate(t.g, sum, options);
    size_t collectives = 0;
    for (const Region& region : back.regions) {
      for (NodeId id : region.nodes) collectives += is_collective(back.node(id).op) ? 1 : 0;
    }
    EXPECT_EQ(collectives, again ? 3U : 2U);  // forward, its dual, and perhaps forward again
  }
}

}  // namespace
}  // namespace cad::ir
