// backend/checkpoint.h -- a run's folder:
//   step-000300/model.safetensors       parameters and states, one tensor a path
//   step-000300/optimizer.safetensors   optimizer states, `m:h.3.block.attention.Wq`
//   step-000300/ema.safetensors         the moving average, when there is one
//   step-000300/state.json              step, rows read, updates made, configuration
//   best/                               likewise, of the best evaluation
//   model.safetensors, ema.safetensors  the newest step's (hard links)
// A checkpoint is written to a hidden folder, synced and renamed: one that has its name is
// complete. The files do not depend on the devices: the first device makes them, every device
// writes its own blocks into them, the first one renames.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/folder_lock.h"
#include "backend/safetensors.h"
#include "backend/team.h"
#include "base/result.h"

namespace cad::backend {

struct CheckpointState {
  int64_t step = 0, rows = 0, updates = 0;
  uint64_t seed = 0;
  double loss_scale = 1;
  int64_t good_steps = 0;
  std::string config;          // hash of what must not change for an exact continuation
  std::optional<double> best;  // best evaluation so far
};

// Every tensor of the run, in an order that is the same on all devices, with what this one has.
struct CheckpointContents {
  std::vector<TensorToWrite> model, optimizer, average;
  CheckpointState state;
};

// One to read.
struct Checkpoint {
  std::string folder;
  CheckpointState state;
  [[nodiscard]] std::string file(const char* name) const { return folder + "/" + name; }
};

// `path` is a checkpoint or a run's folder (then its newest). E0614 when there is none.
Result<Checkpoint> find_checkpoint(const std::string& path);

class CheckpointFolder {
 public:
  enum class Mode { kFresh, kResume, kOverwrite };
  // Makes the folder, checks that no other run is saving to it (E0613) and that it can be written,
  // that it holds no other run's checkpoints (E0613 too, unless resuming or overwriting) and that
  // the disk has room for one (E0602). It is this run's until the object and its copies are gone.
  // With several devices all call it, and a host that does not see the folder is an error (E1003).
  static Result<CheckpointFolder> open(const std::string& path, Mode mode, int64_t keep,
                                       int64_t bytes, const Team& team = {});
  // Resumed from `step`: later ones will go, once this run has saved.
  void discard_after(int64_t step);
  Status save(const CheckpointContents& contents);
  Status save_best(const CheckpointContents& contents);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t last_saved() const { return last_saved_; }  // step; -1: none by this run

 private:
  static Result<CheckpointFolder> open_first(const std::string& path, Mode mode, int64_t keep,
                                             int64_t bytes);
  Status seen_by_all();
  Status write(const CheckpointContents& contents, const std::string& name);
  Status finish(const CheckpointContents& contents, const std::string& name);
  Status publish_newest(const std::string& name);
  void remove_old();
  void remove_if_new();
  Team team_;
  std::string path_;
  std::shared_ptr<FolderLock> lock_;  // the first device's
  bool created_ = false;              // by open()
  int64_t keep_ = 0;
  int64_t last_saved_ = -1;
  std::vector<std::string> foreign_;  // another run's, removed once this one has saved (overwrite)
};

}  // namespace cad::backend
