// backend/trainer_update.cc -- from a step's gradients to new parameters: gradients come to the
// optimizer's layout, their norm is taken, every parameter is updated where its optimizer states
// are, and comes back to where it is stored. With one device nothing moves. See backend/trainer.h.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/thread_pool.h"
#include "backend/trainer.h"
#include "base/check.h"

namespace cad::backend {
namespace {

constexpr int64_t kNormBlock = 1 << 14;

// Sum of squares in blocks of fixed size, in double: does not depend on the number of threads.
double sum_of_squares(const float* values, int64_t count, std::vector<double>& parts,
                      ThreadPool& pool) {
  const int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
  if (static_cast<int64_t>(parts.size()) < blocks) parts.resize(static_cast<size_t>(blocks));
  pool.split(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min(count, (block + 1) * kNormBlock);
      double lanes[8] = {};
      int64_t i = block * kNormBlock;
      for (; i + 8 <= last; i += 8) {
        for (int64_t lane = 0; lane < 8; ++lane) {
          const auto v = static_cast<double>(values[i + lane]);
          lanes[lane] += v * v;
        }
      }
      double sum = 0;
      for (; i < last; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      for (const double lane : lanes) sum += lane;
      parts[static_cast<size_t>(block)] = sum;
    }
  });
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += parts[static_cast<size_t>(block)];
  return total;
}

}  // namespace

// Programs are shared by parameters of one shape.
int Trainer::conversion(const Parameter& p, const planner::Layout& from,
                        const planner::Layout& to) {
  if (from == to) return -1;
  const auto text = [&](const planner::Layout& layout) {
    return fmt::format("{} {}", fmt::join(layout.axis, ","), layout.order);
  };
  const std::string key =
      fmt::format("{} x {}: {} to {}", p.iterations, shape_text(p.extents), text(from), text(to));
  const auto [place, fresh] =
      known_conversions_.emplace(key, static_cast<int>(conversion_programs_.size()));
  if (fresh) {
    conversion_programs_.push_back(
        compile(conversion_graph(mesh_, p.dtype, p.iterations, p.extents, from, to),
                spec_->bindings, compile_options()));
  }
  return place->second;
}

void Trainer::add_conversions() {
  for (const Parameter& p : parameters_.all()) {
    Conversions c;
    if (train_.program().output("grad:" + p.local) >= 0) {
      c.gradient = conversion(p, p.gradient_layout, p.optimizer_layout);
      c.take = conversion(p, p.storage_layout, p.optimizer_layout);
      c.give = conversion(p, p.optimizer_layout, p.storage_layout);
    }
    conversions_.push_back(c);
  }
}

void Trainer::convert(int program, void* from, void* to) {
  Run run;
  run.inputs = {from};
  run.outputs = {to};
  run.arena = memory_.region() + conversion_offset_;
  run.coordinates = planner::coordinates_of(mesh_, team_.device());
  run.comm = team_.comm();
  const int64_t start = now_ns();
  execute(conversion_programs_[static_cast<size_t>(program)], *pool_, run);
  converted_ns_ += now_ns() - start;
}

// In place, through the scratch: gradients are summed over devices here when they are partial.
void Trainer::convert_gradients() {
  std::byte* scratch = memory_.region() + scratch_offset_;
  for (size_t i = 0; i < conversions_.size(); ++i) {
    if (conversions_[i].gradient < 0) continue;
    const Parameter& p = parameters_.all()[i];
    convert(conversions_[i].gradient, gradients_[i], scratch);
    std::memcpy(gradients_[i], scratch,
                static_cast<size_t>(p.iterations * p.optimizer.elements() * 4));
  }
}

// Of this device: its own elements, where it is the one that counts them.
double Trainer::squares_of_gradients() {
  double squares = 0;
  for (const Segment& segment : optimizer_.segments()) {
    const Parameter& p = parameters_.all()[static_cast<size_t>(segment.parameter)];
    const float* gradient = gradients_[static_cast<size_t>(segment.parameter)];
    CAD_CHECK(gradient != nullptr, "trained parameter `{}` has no gradient", p.local);
    if (!p.optimizer.counts) continue;
    const int64_t elements = p.optimizer.elements();
    gradient += segment.first_iteration * elements;
    if (p.optimizer.own_elements() == elements) {
      squares += sum_of_squares(gradient, segment.iterations * elements, norm_parts_, *pool_);
      continue;
    }
    for (int64_t i = 0; i < segment.iterations; ++i, gradient += elements) {
      each_stretch(p.optimizer, [&](int64_t here, int64_t, int64_t count) {
        squares += sum_of_squares(gradient + here, count, norm_parts_, *pool_);
      });
    }
  }
  return squares;
}

// Sums go in device order, so every device comes to the same bits.
Trainer::StepFacts Trainer::exchange(const StepFacts& mine) const {
  if (team_.devices() == 1) return mine;
  StepFacts all;
  for (const StepFacts& facts : team_.gather(mine, "the step's norm")) {
    all.squares += facts.squares;
    all.odd_loss |= facts.odd_loss;
    all.odd_op |= facts.odd_op;
    all.signal = all.signal != 0 ? all.signal : facts.signal;
  }
  return all;
}

void Trainer::update_parameters(const Optimizer::Update& update) {
  std::byte* scratch = memory_.region() + scratch_offset_;
  const std::vector<Segment>& segments = optimizer_.segments();
  for (size_t begin = 0, end = 0; begin < segments.size(); begin = end) {
    const auto parameter = static_cast<size_t>(segments[begin].parameter);
    const Parameter& p = parameters_.all()[parameter];
    const Conversions& c = conversions_[parameter];
    std::byte* values = p.data;
    if (c.take >= 0) {
      values = scratch;
      convert(c.take, p.data, values);
    }
    for (end = begin; end < segments.size() && segments[end].parameter == segments[begin].parameter;
         ++end) {
      optimizer_.update(segments[end], p, reinterpret_cast<float*>(values), gradients_[parameter],
                        update, *pool_);
    }
    if (c.give >= 0) convert(c.give, values, p.data);
  }
}

void Trainer::average_parameters() {
  const auto keep = static_cast<float>(*spec_->ema);
  const auto fresh = static_cast<float>(1.0 - *spec_->ema);
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    if (averages_[i] == p.data) continue;
    auto* average = reinterpret_cast<float*>(averages_[i]);
    const auto* now = reinterpret_cast<const float*>(p.data);
    pool_->split(p.elements(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) average[k] = keep * average[k] + fresh * now[k];
    });
  }
}

}  // namespace cad::backend
