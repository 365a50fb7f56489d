// tools/transformer_estimate.cc -- see transformer_estimate.h. Letters: r rows of the activations a
// device holds (micro-batch x sequence), h hidden, t tensor parallel, e bytes an element.
#include "tools/transformer_estimate.h"

#include <algorithm>

#include "base/check.h"
#include "planner/collective.h"
#include "planner/mesh.h"

namespace cad::tools {
namespace {

using planner::AxisSet;
using planner::Collective;
using planner::Work;

constexpr AxisSet kData = 1, kTensor = 2;

class Estimate {
 public:
  Estimate(const TransformerRun& run, const planner::Cluster& cluster,
           const planner::CostConstants& constants)
      : run_(run), cluster_(cluster), constants_(constants) {
    Result<planner::Mesh> mesh =
        planner::make_mesh(cluster, {{"dp", run.gpus / run.tensor}, {"tp", run.tensor}});
    CAD_CHECK(mesh.ok(), "{}", mesh.error().message);
    mesh_ = *mesh;
    rows_ = run.micro_batch * run.sequence;
    element_ = run.half ? 2 : 4;
  }

  StepSeconds seconds() const {
    StepSeconds step;
    step.layer_forward = forward();
    step.layer_backward = backward() + (run_.recompute ? forward() : 0);
    step.head = head();
    const double micro = run_.layers * (step.layer_forward + step.layer_backward) + step.head;
    step.optimizer = optimizer();
    step.exposed = exposed(run_.layers * step.layer_backward, micro);
    step.total = run_.accumulate * micro + step.exposed + step.optimizer;
    return step;
  }

 private:
  [[nodiscard]] double price(Work work) const {
    work.dtype = !run_.half ? ir::DType::kF32 : run_.f16 ? ir::DType::kF16 : ir::DType::kBF16;
    return planner::compute_seconds(cluster_.device, work, constants_);
  }
  // `count` products of m x k by k x n.
  [[nodiscard]] double product(double m, double n, double k, double count = 1) const {
    Work work;
    work.matmul_flops = 2 * m * n * k * count;
    work.bytes = element_ * (m * k + k * n + m * n) * count;
    work.m = m;
    work.n = n;
    work.k = k;
    return price(work);
  }
  // The gradients of both operands.
  [[nodiscard]] double product_gradients(double m, double n, double k, double count = 1) const {
    return product(m, k, n, count) + product(k, n, m, count);
  }
  [[nodiscard]] double stream(double bytes) const {
    Work work;
    work.bytes = bytes;
    return price(work);
  }
  [[nodiscard]] double all_reduce_of_rows() const {
    return planner::collective_seconds(mesh_, kTensor, Collective::kAllReduce,
                                       rows_ * run_.hidden * element_);
  }
  // Norms, dropout and residuals lie on every device of a tensor parallel group, or are split.
  [[nodiscard]] double row_bytes() const {
    return rows_ * run_.hidden * element_ / (run_.sequence_parallel ? run_.tensor : 1);
  }

  [[nodiscard]] double forward() const {
    const double h = run_.hidden, t = run_.tensor;
    double seconds = product(rows_, 3 * h / t, h) + product(rows_, h, h / t) +
                     product(rows_, 4 * h / t, h) + product(rows_, h, 4 * h / t);
    seconds += attention(false);
    // twice: norm (read, write), dropout and residual (read both, write)
    seconds += 2 * (stream(2 * row_bytes()) + stream(3 * row_bytes()));
    seconds += stream(2 * rows_ * 4 * h / t * element_);  // gelu
    return seconds + 2 * all_reduce_of_rows();
  }

  [[nodiscard]] double backward() const {
    const double h = run_.hidden, t = run_.tensor;
    double seconds = product_gradients(rows_, 3 * h / t, h) + product_gradients(rows_, h, h / t) +
                     product_gradients(rows_, 4 * h / t, h) +
                     product_gradients(rows_, h, 4 * h / t);
    seconds += attention(true);
    // twice: norm (two operands and the gradient), dropout and the sum of both paths
    seconds += 2 * (stream(3 * row_bytes()) + stream(3 * row_bytes()));
    seconds += stream(3 * rows_ * 4 * h / t * element_);
    return seconds + 2 * all_reduce_of_rows();
  }

  // Fused and causal: half of the products; the backward pass has five of them for the forward's
  // two. Stored: all of them, and the scores pass through memory.
  [[nodiscard]] double attention(bool backward) const {
    const double s = run_.sequence, heads = run_.micro_batch * run_.heads / run_.tensor;
    const double k = run_.hidden / run_.heads;
    if (!run_.stored_attention) {
      Work work;
      work.attention_flops = (backward ? 5 : 2) * heads * s * s * k;
      work.bytes = (backward ? 8 : 4) * heads * s * k * element_;
      work.m = s;
      work.n = s;
      work.k = k;
      return price(work);
    }
    const double scores = heads * s * s;
    const double mask = run_.dropout ? scores : 0;
    const double passes = run_.dropout ? 2 : 0;
    if (!backward) {
      return product(s, s, k, heads) + product(s, k, s, heads) + stream(2 * scores * element_) +
             stream(passes * scores * element_ + mask);
    }
    return product_gradients(s, s, k, heads) + product_gradients(s, k, s, heads) +
           stream(3 * scores * element_) + stream(passes * scores * element_ + mask);
  }

  // Logits, their loss and gradient; the embedding's rows.
  [[nodiscard]] double head() const {
    const double h = run_.hidden, columns = run_.vocab / run_.tensor;
    return product(rows_, columns, h) + product_gradients(rows_, columns, h) +
           stream(rows_ * columns * element_) + stream(2 * rows_ * columns * element_) +
           stream(4 * rows_ * h * element_) + stream(4 * row_bytes());
  }

  // Reads gradient, parameter and two moments, writes the last three and the 16 bit copy; reads the
  // gradients once more for their norm.
  [[nodiscard]] double optimizer() const {
    const double shards =
        run_.tensor * (run_.zero >= 1 ? static_cast<double>(run_.gpus) / run_.tensor : 1);
    const double bytes = 2 * run_.gradient_bytes + 3 * 4 + 3 * 4 + (run_.half ? 2 : 0);
    return stream(parameters(run_) / shards * bytes);
  }

  [[nodiscard]] double exposed(double backward, double micro) const {
    const double own = parameters(run_) / run_.tensor;
    const auto seconds = [&](Collective kind, double bytes) {
      return planner::collective_seconds(mesh_, kData, kind, bytes);
    };
    const double gradients = own * run_.gradient_bytes;
    if (run_.zero == 3) {
      // every micro-batch: gathered forward and backward, gradients scattered
      const double each = 2 * seconds(Collective::kAllGather, own * element_) +
                          seconds(Collective::kReduceScatter, gradients) +
                          3 * (run_.layers - 1) * seconds(Collective::kAllGather, 0);
      return run_.accumulate * exposed_of(each, micro);
    }
    if (run_.zero == 0) return exposed_of(seconds(Collective::kAllReduce, gradients), backward);
    const double forward = micro - backward;
    return exposed_of(seconds(Collective::kReduceScatter, gradients), backward) +
           exposed_of(seconds(Collective::kAllGather, own * element_), forward);
  }

  [[nodiscard]] double exposed_of(double communication, double compute) const {
    if (!run_.overlap) return communication;
    return planner::exposed_seconds(communication, compute, constants_);
  }

  const TransformerRun& run_;
  const planner::Cluster& cluster_;
  const planner::CostConstants& constants_;
  planner::Mesh mesh_;
  double rows_ = 0, element_ = 2;
};

}  // namespace

double parameters(const TransformerRun& run) {
  const double h = run.hidden;
  return run.layers * (12 * h * h + 13 * h) + (run.vocab + run.sequence) * h + 2 * h;
}

StepSeconds step_seconds(const TransformerRun& run, const planner::Cluster& cluster,
                         const planner::CostConstants& constants) {
  return Estimate(run, cluster, constants).seconds();
}

double state_bytes_a_parameter(int zero, double data, bool half, double gradient_bytes) {
  const double copy = half ? 2 : 0;
  const double value_and_moments = 12;
  return copy / (zero >= 3 ? data : 1) + gradient_bytes / (zero >= 2 ? data : 1) +
         value_and_moments / (zero >= 1 ? data : 1);
}

double layer_bytes(const TransformerRun& run) {
  const double e = run.half ? 2 : 4, t = run.tensor, rows = run.micro_batch * run.sequence;
  const double sbh = rows * run.hidden;
  // Norms' inputs and what the two branches take from them (8 bytes at two an element, two more
  // with dropout's masks) lie on all of t unless sequence parallel; q, k, v, attention's result,
  // gelu's input and result (24) are split.
  const double outside = 4 * e + (run.dropout ? 2 : 0), inside = 12 * e;
  double bytes = sbh * (outside / (run.sequence_parallel ? t : 1) + inside / t);
  if (run.stored_attention) {
    const double scores = run.micro_batch * run.heads / t * run.sequence * run.sequence;
    bytes += scores * (run.dropout ? 2 * e + 1 : 2 * e);
  }
  return bytes;
}

StepBytes step_bytes(const TransformerRun& run) {
  const double data = static_cast<double>(run.gpus) / run.tensor;
  const double e = run.half ? 2 : 4, rows = run.micro_batch * run.sequence;
  StepBytes bytes;
  bytes.states = parameters(run) / run.tensor *
                 state_bytes_a_parameter(run.zero, data, run.half, run.gradient_bytes);
  // recomputed: the inputs of all layers, and one layer while it is worked on
  const double layer = layer_bytes(run);
  bytes.activations =
      run.recompute ? run.layers * rows * run.hidden * e + layer : run.layers * layer;
  // logits and their gradient; with ZeRO-3 the gathered parameters of two layers
  bytes.activations += 2 * rows * run.vocab / run.tensor * e;
  if (run.zero == 3) bytes.activations += 2 * 12 * run.hidden * run.hidden * e;
  return bytes;
}

}  // namespace cad::tools
