// backend/trainer_state.cc -- what a run saves and restores: tensors by their names in the whole,
// blocks of them as this device has them. See backend/trainer.h and backend/checkpoint.h.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/initialize.h"
#include "backend/trainer.h"

namespace cad::backend {
namespace {

uint64_t fnv(uint64_t hash, const std::string& text) {
  for (const char c : text + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

Diagnostic lacks(const std::string& file, const std::string& tensor) {
  Diagnostic error =
      make_error(DiagId::E0615, fmt::format("checkpoint `{}` has no tensor `{}`", file, tensor),
                 kExitRunFailed);
  error.help(
      "resume with the program that wrote it, or start a new run from its parameters with "
      "`--init`");
  return error;
}

// `optional`: a parameter whose tensors may be left out (frozen ones, with `frozen: false`).
Status restore_parameter(const SafetensorsFile& file, const Parameter& p, std::byte* to,
                         bool optional) {
  const int64_t step = p.iteration_elements * ir::dtype_bytes(p.dtype);
  for (int64_t i = 0; i < p.iterations; ++i) {
    const StoredTensor* tensor = file.find(p.iteration_path(i));
    if (tensor == nullptr && optional) continue;
    if (tensor == nullptr) return lacks(file.path(), p.iteration_path(i));
    CAD_TRY_VOID(read_tensor(file, *tensor, p, to + i * step));
  }
  return Ok{};
}

// A state's tensors as Parameters, so that reading, writing and their checks are shared.
Parameter as_parameter(const Segment& segment, const OptimizerState& state, const Parameter& p) {
  Parameter view = p;
  view.dtype = state.dtype;
  view.extents = state.extents;
  view.dims.clear();
  view.storage = state.shard;
  view.iterations = state.per_iteration ? segment.iterations : 1;
  view.iteration_elements = state.shard.elements();
  view.data = state.data;
  return view;
}

std::string state_path(const Segment& segment, const OptimizerState& state, const Parameter& p,
                       int64_t i) {
  return state.name + ":" +
         (state.per_iteration ? p.iteration_path(segment.first_iteration + i) : segment.first_path);
}

// A tensor of the files: name, type and shape. Who has data of it, and where, comes later.
struct Entries {
  std::vector<TensorToWrite> list;
  std::map<std::string, size_t> by_name;
  void add(TensorToWrite tensor) {
    by_name[tensor.name] = list.size();
    list.push_back(std::move(tensor));
  }
  void fill(const std::string& name, const std::byte* data, const Shard& shard) {
    const auto at = by_name.find(name);
    if (at == by_name.end()) return;  // left out
    TensorToWrite& tensor = list[at->second];
    tensor.data = data;
    if (!shard.is_whole() || !shard.counts) tensor.shard = shard;
  }
};

// Of the elements that the device owns, wherever its buffer has them.
uint64_t digest_of(const Parameter& p, ThreadPool& pool) {
  const int64_t width = ir::dtype_bytes(p.dtype);
  std::atomic<uint64_t> sum{0};
  for (int64_t i = 0; i < p.iterations; ++i) {
    const std::byte* data = p.data + i * p.iteration_elements * width;
    each_stretch(p.storage, [&](int64_t here, int64_t there, int64_t count) {
      pool.split(count, 1 << 14, [&](int64_t begin, int64_t end) {
        uint64_t part = 0;
        for (int64_t k = begin; k < end; ++k) {
          uint64_t bits = 0;
          std::memcpy(&bits, data + (here + k) * width, static_cast<size_t>(width));
          bits ^= static_cast<uint64_t>(there + k) * 0x9E3779B97F4A7C15ULL;
          bits = (bits ^ (bits >> 32)) * 0xD6E8FEB86659FD93ULL;
          part += bits ^ (bits >> 29);
        }
        sum += part;
      });
    });
    sum = sum * 0x100000001b3ULL;
  }
  return sum;
}

}  // namespace

Status Trainer::check_replicas() const {
  if (team_.devices() == 1) return Ok{};
  struct Digests {
    uint64_t of[64] = {};
  };
  const std::vector<Parameter>& all = parameters_.all();
  for (size_t begin = 0; begin < all.size(); begin += std::size(Digests{}.of)) {
    const size_t end = std::min(all.size(), begin + std::size(Digests{}.of));
    Digests mine;
    for (size_t i = begin; i < end; ++i) mine.of[i - begin] = digest_of(all[i], *pool_);
    const std::vector<Digests> digests = team_.gather(mine, "first values");
    for (size_t i = begin; i < end; ++i) {
      std::vector<Shard> blocks;
      for (int d = 0; d < team_.devices(); ++d) {
        blocks.push_back(shard_of(all[i].storage_layout, all[i].extents, mesh_,
                                  planner::coordinates_of(mesh_, d)));
      }
      for (size_t d = 1; d < blocks.size(); ++d) {
        for (size_t e = 0; e < d; ++e) {
          const bool same_block = blocks[d].own == blocks[e].own;
          if (!same_block || digests[d].of[i - begin] == digests[e].of[i - begin]) continue;
          Diagnostic error =
              make_error(DiagId::E1002,
                         fmt::format("{} and {} start from different values of `{}`",
                                     team_.name_of(static_cast<int>(e)),
                                     team_.name_of(static_cast<int>(d)), all[i].path),
                         kExitRunFailed);
          error.help("give every rank the same files: `--init`, `--resume`, `init` of the program");
          return error;
        }
      }
    }
  }
  return Ok{};
}

Status Trainer::restore(const Checkpoint& checkpoint) {
  CAD_TRY_VOID(team_.agree(read_checkpoint(checkpoint), "reading the checkpoint"));
  steps_done_ = checkpoint.state.step;
  rows_done_ = checkpoint.state.rows;
  updates_done_ = checkpoint.state.updates;
  if (spec_->precision == ir::DType::kF16) loss_scale_ = checkpoint.state.loss_scale;
  good_steps_ = checkpoint.state.good_steps;
  return Ok{};
}

Status Trainer::read_checkpoint(const Checkpoint& checkpoint) {
  CAD_TRY(model, SafetensorsFile::open(checkpoint.file("model.safetensors")));
  for (const Parameter& p : parameters_.all()) {
    const bool optional = p.kind == ir::InputKind::kParam && p.frozen;
    CAD_TRY_VOID(restore_parameter(model, p, p.data, optional));
  }
  CAD_TRY(optimizer, SafetensorsFile::open(checkpoint.file("optimizer.safetensors")));
  for (const Segment& segment : optimizer_.segments()) {
    const Parameter& p = parameters_.all()[static_cast<size_t>(segment.parameter)];
    for (const OptimizerState& state : segment.states) {
      const Parameter view = as_parameter(segment, state, p);
      const int64_t bytes = view.iteration_elements * ir::dtype_bytes(view.dtype);
      for (int64_t i = 0; i < view.iterations; ++i) {
        const std::string path = state_path(segment, state, p, i);
        const StoredTensor* tensor = optimizer.find(path);
        if (tensor == nullptr) return lacks(optimizer.path(), path);
        CAD_TRY_VOID(read_tensor(optimizer, *tensor, view, view.data + i * bytes));
      }
    }
  }
  if (spec_->ema) {
    CAD_TRY(average, SafetensorsFile::open(checkpoint.file("ema.safetensors")));
    for (size_t i = 0; i < averages_.size(); ++i) {
      const Parameter& p = parameters_.all()[i];
      if (averages_[i] != p.data) CAD_TRY_VOID(restore_parameter(average, p, averages_[i], false));
    }
  }
  return Ok{};
}

CheckpointContents Trainer::contents() const {
  CheckpointContents contents;
  Entries model, average, optimizer;
  for (const Parameter& p : whole_.all()) {
    const bool left_out = !spec_->save.frozen && p.kind == ir::InputKind::kParam && p.frozen;
    for (int64_t i = 0; !left_out && i < p.iterations; ++i) {
      const TensorToWrite tensor{p.iteration_path(i), stored_as(p.dtype), p.extents};
      model.add(tensor);
      if (spec_->ema) average.add(tensor);
    }
  }
  for (const Segment& segment : whole_optimizer_.segments()) {
    const Parameter& p = whole_.all()[static_cast<size_t>(segment.parameter)];
    for (const OptimizerState& state : segment.states) {
      const int64_t count = state.per_iteration ? segment.iterations : 1;
      for (int64_t i = 0; i < count; ++i)
        optimizer.add({state_path(segment, state, p, i), stored_as(state.dtype), state.extents});
    }
  }
  for (size_t k = 0; k < parameters_.all().size(); ++k) {
    const Parameter& p = parameters_.all()[k];
    const int64_t bytes = p.iteration_elements * ir::dtype_bytes(p.dtype);
    for (int64_t i = 0; i < p.iterations; ++i) {
      model.fill(p.iteration_path(i), p.data + i * bytes, p.storage);
      average.fill(p.iteration_path(i), averages_[k] + i * bytes, p.storage);
    }
  }
  for (const Segment& segment : optimizer_.segments()) {
    const Parameter& p = parameters_.all()[static_cast<size_t>(segment.parameter)];
    for (const OptimizerState& state : segment.states) {
      if (!state.per_iteration && !segment.has_first) continue;
      const Parameter view = as_parameter(segment, state, p);
      const int64_t bytes = view.iteration_elements * ir::dtype_bytes(view.dtype);
      for (int64_t i = 0; i < view.iterations; ++i)
        optimizer.fill(state_path(segment, state, p, i), view.data + i * bytes, view.storage);
    }
  }
  contents.model = std::move(model.list);
  contents.average = std::move(average.list);
  contents.optimizer = std::move(optimizer.list);
  contents.state.step = steps_done_;
  contents.state.rows = rows_done_;
  contents.state.updates = updates_done_;
  contents.state.seed = spec_->seed;
  contents.state.loss_scale = loss_scale_;
  contents.state.good_steps = good_steps_;
  contents.state.config = config_hash();
  return contents;
}

int64_t Trainer::checkpoint_bytes() const {
  int64_t bytes = 0;
  for (const Parameter& p : whole_.all())
    bytes += aligned(p.bytes()) * (spec_->ema && p.trained() ? 2 : 1);
  for (const Segment& segment : whole_optimizer_.segments()) {
    for (const OptimizerState& state : segment.states) bytes += aligned(state.bytes());
  }
  return bytes;
}

std::string Trainer::config_hash() const {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Parameter& p : whole_.all()) {
    hash = fnv(hash, fmt::format("{} {} {}", p.path, shape_text(p.loops), shape_text(p.extents)));
  }
  for (const ir::DataSource& source : spec_->data) {
    for (const std::string& file : source.files) hash = fnv(hash, file);
    for (const ir::DataName& name : source.names) hash = fnv(hash, name.name);
  }
  for (const ir::OptimizerEntry& entry : spec_->optimizers) {
    hash = fnv(hash, entry.name);
    for (const auto& [name, value] : entry.constants)
      hash = fnv(hash, fmt::format("{} {}", name, value));
  }
  for (const auto& [name, value] : spec_->bindings)
    hash = fnv(hash, fmt::format("{} {}", name, value));
  // not how many parts its micro-batches are read in: the results are the same
  hash = fnv(hash,
             fmt::format("{} {} {} {} {} {} {} {}", spec_->seed, spec_->accumulate / spec_->parts,
                         static_cast<int>(spec_->precision), spec_->clip.value_or(0),
                         spec_->ema.value_or(0), spec_->shuffled, spec_->dropout, total_steps_));
  return fmt::format("{:016x}", hash);
}

}  // namespace cad::backend
