// tests/frontend/annotations_test.cc -- what `@shard` and the others fix stands on the graph's
// values, through lowering, the passes and the text form, and decides what loops save.
#include <algorithm>

#include "ir/passes.h"
#include "tests/frontend/frontend_testing.h"

namespace cad::frontend {
namespace {

// The value of this name that has pins.
const ir::Value* find(const ir::Graph& g, const std::string& name) {
  for (const ir::Value& value : g.values) {
    if (value.name == name && !value.pins.empty()) return &value;
  }
  return nullptr;
}

// The one softmax's result; nullptr: it was raised into an attention.
const ir::Value* probabilities(const ir::Graph& g) {
  for (const ir::Node& n : g.nodes) {
    if (n.op == ir::Op::kSoftmax) return &g.value(n.results[0]);
  }
  return nullptr;
}

std::string pins(const ir::Graph& g, const ir::Value* value) {
  if (value == nullptr) return "no such value";
  std::string text;
  for (const ir::Pin& pin : value->pins) text += g.dim(pin.dim).name + ":" + pin.axis + " ";
  return text;
}

const char* const kAttention = R"(
dim B = 4, T = 8, S = T, D = 12, H = 3, K = D / H, L = 2
layer Attend(x: [B, T, D]) -> [B, T, D] {
  param Wq, Wk, Wv : [D, H, K] = normal(0.5) @shard(H: tp, D: none)
  param Wo : [H, K, D] = normal(0.5)
  q = x @[D] Wq @shard(H: tp)
  s = q @[K] (x @[D] Wk)[T -> S] / sqrt(K)
  p = softmax[S](causal[T, S](s)) @SAVE
  return p @[S] ((x @[D] Wv)[T -> S]) @[H, K] Wo @shard(B: dp)
}
model Net(x: [B, T, D]) -> [] {
  repeat L as h @LOOP { x = x + Attend(x) }
  return sum[B, T, D](x)
}
)";

std::string program(const std::string& save, const std::string& loop = "") {
  std::string text = kAttention;
  text.replace(text.find("@SAVE"), 5, save);
  text.replace(text.find("@LOOP"), 5, loop);
  return text;
}

ir::Graph trained(const std::string& text) {
  auto p = checked(text);
  ir::Graph g = lowered(*p);
  g.outputs[0].name = "loss";
  return ir::training_graph(std::move(g));
}

TEST(Annotations, StandOnValuesThroughAllPasses) {
  auto p = checked(program("@keep"));
  const ir::Graph g = lowered(*p);
  for (const ir::Graph& graph : {g, ir::evaluation_graph(g), trained(program("@keep"))}) {
    for (const ir::Input& in : graph.inputs) {
      if (in.kind != ir::InputKind::kParam) continue;
      const bool pinned = in.path.find("Wo") == std::string::npos;
      EXPECT_EQ(pins(graph, &graph.value(in.value)), pinned ? "H:tp D: " : "") << in.path;
    }
    EXPECT_EQ(pins(graph, find(graph, "q")), "H:tp ");
    const ir::Value* kept = probabilities(graph);
    ASSERT_NE(kept, nullptr);  // not raised into one op
    EXPECT_EQ(kept->saving, ir::Saving::kKeep);
    auto again = ir::parse_graph(ir::print(graph));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(ir::print(*again), ir::print(graph));
    EXPECT_EQ(pins(*again, find(*again, "q")), "H:tp ");
    EXPECT_EQ(probabilities(*again)->saving, ir::Saving::kKeep);
  }
  const std::string text = ir::print(g);
  EXPECT_NE(text.find("%q.1"), std::string::npos);
  EXPECT_NE(text.find("pins(H: tp, D: none)"), std::string::npos);
  EXPECT_NE(text.find(" keep = softmax("), std::string::npos);
  // Parameters of a loop carry their pins inside it too.
  const ir::Node* loop = nullptr;
  for (const ir::Node& n : g.nodes) loop = n.op == ir::Op::kRepeat ? &n : loop;
  ASSERT_NE(loop, nullptr);
  size_t inside = 0;
  for (ir::ValueId arg : g.region(loop->loop.body).args) inside += g.value(arg).pins.size();
  EXPECT_EQ(inside, 6U);
}

// Of what a loop collects for its backward loop: whether softmax's result is among it, how many.
std::pair<bool, size_t> saved(const std::string& text) {
  const ir::Graph g = trained(text);
  bool softmax = false;
  size_t count = 0;
  for (const ir::Node& n : g.nodes) {
    if (n.op != ir::Op::kRepeat || n.loop.reverse) continue;
    const std::vector<ir::ValueId>& results = g.region(n.loop.body).results;
    for (size_t i = static_cast<size_t>(n.loop.carries); i < results.size(); ++i) {
      ++count;
      const ir::NodeId def = g.value(results[i]).def;
      softmax |= def.valid() && g.node(def).op == ir::Op::kSoftmax;
    }
  }
  return {softmax, count};
}

TEST(Annotations, DecideWhatALoopSaves) {
  EXPECT_TRUE(saved(program("@keep")).first);
  EXPECT_FALSE(saved(program("@recompute")).first);
  EXPECT_EQ(saved(program("@recompute", "@checkpoint")).second, 1U);  // x alone
  EXPECT_TRUE(saved(program("@keep", "@checkpoint")).first);
  // None of it changes results.
  const auto loss = [](const std::string& text) {
    const ir::Graph g = trained(text);
    auto p = checked(text);
    const auto out = run(*p, g, {}, {});
    std::vector<double> all;
    for (const auto& [name, tensor] : out)
      all.insert(all.end(), tensor.data.begin(), tensor.data.end());
    return all;
  };
  const std::vector<double> plain = loss(program(""));
  EXPECT_GT(plain.size(), 100U);
  for (const auto& [save, loop] : {std::pair{"@keep", ""},
                                   {"@recompute", ""},
                                   {"@keep", "@checkpoint"},
                                   {"@recompute", "@checkpoint"},
                                   {"", "@checkpoint"}}) {
    const std::vector<double> other = loss(program(save, loop));
    ASSERT_EQ(other.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i)
      ASSERT_NEAR(other[i], plain[i], 1e-9 * (1 + std::abs(plain[i]))) << save << loop;
  }
}

// Two layers, in a loop or one after the other.
std::string two_layers(const std::string& inner, const std::string& outer, bool loop) {
  const std::string layer =
      "dim B = 3, D = 4, E = D\n"
      "layer Block(x: [B, D]) -> [B, D] {\n  param w : [D, E] = normal(0.7)\n"
      "  s = sin(x @[D] w) " +
      inner + "\n  a = s[E -> D]\n  b = a * a + x " + outer + "\n  return b\n}\n";
  return layer + "model Net(x: [B, D]) -> [] {\n" +
         (loop ? "  repeat 2 { x = Block(x) }\n" : "  x = Block(x)\n  x = Block(x)\n") +
         "  return sum[B, D](x * x)\n}\n";
}

int count(const ir::Graph& g, ir::Op op) {
  int n = 0;
  for (const ir::Node& node : g.nodes) n += node.op == op ? 1 : 0;
  return n;
}

TEST(Annotations, ComputeAgainInLoopsAndOutside) {
  for (const bool loop : {false, true}) {
    const auto gradients = [](const std::string& text) {
      auto p = checked(text);
      std::vector<double> all;
      for (const auto& [name, tensor] : run(*p, trained(text), {}, {}))
        all.insert(all.end(), tensor.data.begin(), tensor.data.end());
      return all;
    };
    const std::string plain = two_layers("", "", loop);
    const ir::Graph g = trained(plain);
    const int layers = loop ? 1 : 2;
    // A loop's cut computes the sine again by itself: it is cheap beside a second saved value.
    EXPECT_EQ(count(g, ir::Op::kSin), 2);
    EXPECT_EQ(count(trained(two_layers("@recompute", "", loop)), ir::Op::kSin), 2 * layers);
    EXPECT_EQ(count(trained(two_layers("@keep", "", loop)), ir::Op::kSin), layers);
    // The checkpoint is kept, its product and sine run again.
    const ir::Graph checkpointed = trained(two_layers("", "@checkpoint", loop));
    EXPECT_EQ(count(checkpointed, ir::Op::kSin), 2 * layers);
    EXPECT_EQ(count(checkpointed, ir::Op::kContract), count(g, ir::Op::kContract) + layers);
    const std::vector<double> expected = gradients(plain);
    for (const auto& [inner, outer] : {std::pair{"@recompute", ""},
                                       {"@keep", ""},
                                       {"", "@checkpoint"},
                                       {"@keep", "@checkpoint"},
                                       {"@recompute", "@recompute"}}) {
      const std::vector<double> other = gradients(two_layers(inner, outer, loop));
      ASSERT_EQ(other.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(other[i], expected[i], 1e-9 * (1 + std::abs(expected[i]))) << inner << outer;
    }
  }
}

TEST(Annotations, SplitWhatIsThere) {
  const std::string text =
      "dim B, D\n"
      "model Net(x: [B, D]) -> [B, D] {\n"
      "  param v : [D] = ones @shard(D: tp)\n"
      "  z = sum[B](x) @shard(B: dp)\n"
      "  y = x + z @shard(D: 4)\n"
      "  repeat 2 @shard(D: tp) {\n"
      "    y = y * v @shard(D: tp) @keep\n"
      "  }\n"
      "  return y @shard(B: none)\n}\n";
  EXPECT_EQ(checked(text)->ids(), "E0115:4 E0115:5 E0115:6");
}

}  // namespace
}  // namespace cad::frontend
