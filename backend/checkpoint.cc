// backend/checkpoint.cc -- see backend/checkpoint.h for the layout.
#include "backend/checkpoint.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/mapped_file.h"
#include "backend/run_memory.h"

namespace cad::backend {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStep = "step-";
constexpr uint64_t kMostCounted = uint64_t{1} << 53;  // steps and rows: sums with them fit as well

Diagnostic write_error(const std::string& path, const std::string& why) {
  return make_error(DiagId::E0602, fmt::format("cannot write `{}`: {}", path, why), kExitRunFailed);
}

// -1: not the name of a checkpoint.
int64_t step_of(const std::string& name) {
  if (name.compare(0, 5, kStep) != 0 || name.size() == 5 || name.size() > 23) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return std::strtoll(name.c_str() + 5, nullptr, 10);
}

// Names of complete checkpoints, oldest first.
std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    std::error_code ignored;
    if (step_of(name) >= 0 && fs::exists(i->path() / "state.json", ignored)) names.push_back(name);
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return step_of(a) < step_of(b); });
  return names;
}

// Renamed away first, so that a half-removed checkpoint never has a checkpoint's name.
void remove_folder(const std::string& folder, const std::string& name) {
  const std::string trash = folder + "/.trash-" + name;
  std::error_code ignored;
  fs::remove_all(trash, ignored);
  fs::rename(folder + "/" + name, trash, ignored);
  fs::remove_all(trash, ignored);
}

void remove_leftovers(const std::string& folder) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (name.compare(0, 5, ".tmp-") == 0 || name.compare(0, 7, ".trash-") == 0)
      leftovers.push_back(i->path());
  }
  std::error_code ignored;
  for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
}

// `from` takes the name `to` in one step, whether or not `to` exists.
bool replace_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return false;
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) !=
      0) {
    // No exchange on this file system: a moment without the old one is unavoidable.
    std::error_code error;
    fs::remove_all(to, error);
    return ::rename(from.c_str(), to.c_str()) == 0;
  }
  std::error_code ignored;
  fs::remove_all(from, ignored);
  return true;
}

std::string state_text(const CheckpointState& state) {
  nlohmann::ordered_json json = {{"schema", 1},
                                 {"step", state.step},
                                 {"rows", state.rows},
                                 {"updates", state.updates},
                                 {"seed", state.seed},
                                 {"loss_scale", state.loss_scale},
                                 {"good_steps", state.good_steps},
                                 {"config", state.config}};
  if (state.best) json["best"] = *state.best;
  return json.dump(2) + "\n";
}

Result<CheckpointState> read_state(const std::string& path) {
  CAD_TRY(text, read_text_file(path, 1 << 20));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto broken = [&](const char* why) {
    return make_error(DiagId::E0615, fmt::format("`{}` is not a checkpoint's state: {}", path, why),
                      kExitRunFailed);
  };
  if (!json.is_object()) return broken("not a JSON object");
  if (json.value("schema", nlohmann::json()) != 1) return broken("`schema` is not 1");
  CheckpointState state;
  for (const char* name : {"step", "rows", "updates", "seed", "good_steps"}) {
    if (!json.contains(name) || !json[name].is_number_unsigned())
      return broken(fmt::format("`{}` is not a whole number", name).c_str());
    if (std::strcmp(name, "seed") != 0 && json[name].get<uint64_t>() > kMostCounted)
      return broken(fmt::format("`{}` is more than any run counts", name).c_str());
  }
  if (!json.contains("loss_scale") || !json["loss_scale"].is_number())
    return broken("no `loss_scale`");
  const double scale = json["loss_scale"];
  if (!(scale > 0 && std::isfinite(scale))) return broken("`loss_scale` is not above 0");
  state.step = json["step"];
  state.rows = json["rows"];
  state.updates = json["updates"];
  state.seed = json["seed"];
  state.good_steps = json["good_steps"];
  state.loss_scale = json["loss_scale"];
  if (json.contains("config") && json["config"].is_string()) state.config = json["config"];
  if (json.contains("best") && json["best"].is_number()) state.best = json["best"].get<double>();
  return state;
}

}  // namespace

Result<Checkpoint> find_checkpoint(const std::string& path) {
  Checkpoint found;
  std::error_code ignored;
  if (fs::exists(fs::path(path) / "state.json", ignored)) {
    found.folder = path;
  } else {
    const std::vector<std::string> names = checkpoints_in(path);
    if (names.empty()) {
      Diagnostic error =
          make_error(DiagId::E0614, fmt::format("no checkpoint in `{}`", path), kExitNoInput);
      if (!fs::exists(path, ignored)) error.note("there is no such folder");
      return error;
    }
    found.folder = (fs::path(path) / names.back()).string();
  }
  CAD_TRY(state, read_state(found.file("state.json")));
  found.state = std::move(state);
  return found;
}

Result<CheckpointFolder> CheckpointFolder::open(const std::string& path, Mode mode, int64_t keep,
                                                int64_t bytes, const Team& team) {
  CheckpointFolder folder;
  Status status = Ok{};
  if (team.first()) {
    auto opened = open_first(path, mode, keep, bytes);
    if (opened.ok())
      folder = std::move(*opened);
    else
      status = std::move(opened.error());
  }
  CAD_TRY_VOID(team.agree(std::move(status), "opening the save folder"));
  folder.path_ = path;
  folder.keep_ = keep;
  folder.team_ = team;
  CAD_TRY_VOID(folder.seen_by_all());
  return folder;
}

// A file that the first device makes must be there for every process.
Status CheckpointFolder::seen_by_all() {
  if (team_.devices() == 1) return Ok{};
  const auto number = static_cast<int64_t>(::getpid());
  const std::string sign =
      fmt::format("{}/.tmp-seen-{}", path_, team_.gather(number, "the save folder").front());
  const auto make = [&]() -> Status {
    CAD_TRY(file, FileWriter::create(sign));
    return file.finish();
  };
  CAD_TRY_VOID(team_.agree(team_.first() ? make() : Status(Ok{}), "opening the save folder"));
  Status status = Ok{};
  if (team_.first_here()) {
    bool there = false;
    // A network file system may show a new file late.
    for (int tries = 0; !there && tries < 20; ++tries) {
      if (tries > 0) ::usleep(100'000);
      there = ::access(sign.c_str(), F_OK) == 0;
    }
    if (!there) {
      Diagnostic error = make_error(
          DiagId::E1003,
          fmt::format("device {} does not see the first device's `{}`", team_.device(), path_),
          kExitRunFailed);
      error.help("save to a folder that all hosts share, by one path");
      status = std::move(error);
    }
  }
  status = team_.agree(std::move(status), "looking for the save folder");
  if (team_.first()) ::unlink(sign.c_str());
  return status;
}

Result<CheckpointFolder> CheckpointFolder::open_first(const std::string& path, Mode mode,
                                                      int64_t keep, int64_t bytes) {
  CheckpointFolder folder;
  folder.path_ = path;
  folder.keep_ = keep;
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    return write_error(path, "it is a file, not a folder");
  folder.created_ = fs::create_directories(path, error);
  if (error) return write_error(path, error.message());
  CAD_TRY(lock, FolderLock::take(path));
  folder.lock_ = std::move(lock);
  const auto no_room = [&](Diagnostic why) {
    folder.remove_if_new();
    return why;
  };
  const std::vector<std::string> there = checkpoints_in(path);
  if (mode == Mode::kFresh && !there.empty()) {
    Diagnostic diagnostic = make_error(
        DiagId::E0613, fmt::format("`{}` holds another run's checkpoints", path), kExitRunFailed);
    diagnostic.note(fmt::format("the newest is `{}`", there.back()));
    diagnostic.help(
        "continue it with `--resume`, replace it with `--overwrite`, or save elsewhere with "
        "`--save DIR`");
    return diagnostic;
  }
  if (mode == Mode::kOverwrite) {
    folder.foreign_ = there;
    if (fs::exists(fs::path(path) / "best", error)) folder.foreign_.emplace_back("best");
  }
  remove_leftovers(path);
  // Writing a real file finds every reason not to be able to: rights, read-only disks, quotas.
  const std::string probe = path + "/.tmp-probe";
  const auto write_probe = [&]() -> Status {
    CAD_TRY(file, FileWriter::create(probe));
    CAD_TRY_VOID(file.write("probe", 5));
    return file.finish();
  };
  const Status written = write_probe();
  ::unlink(probe.c_str());
  if (!written.ok()) return no_room(written.error());
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) == 0) {
    const double room = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    if (room < static_cast<double>(bytes)) {
      return no_room(write_error(
          path, fmt::format("a checkpoint needs {}, the disk has {} left", bytes_text(bytes),
                            bytes_text(static_cast<int64_t>(room)))));
    }
  }
  return folder;
}

namespace {

struct FileOf {
  std::string path;
  const std::vector<TensorToWrite>* tensors;
};

std::vector<FileOf> files_of(const CheckpointContents& contents, const std::string& folder) {
  std::vector<FileOf> files{{folder + "/model.safetensors", &contents.model},
                            {folder + "/optimizer.safetensors", &contents.optimizer}};
  if (!contents.average.empty()) files.push_back({folder + "/ema.safetensors", &contents.average});
  return files;
}

std::map<std::string, std::string> metadata_of(const CheckpointContents& contents) {
  return {{"format", "colauto"}, {"step", std::to_string(contents.state.step)}};
}

}  // namespace

Status CheckpointFolder::write(const CheckpointContents& contents, const std::string& name) {
  const std::string partial = path_ + "/.tmp-" + name;
  const std::vector<FileOf> files = files_of(contents, partial);
  const auto create = [&]() -> Status {
    std::error_code error;
    fs::remove_all(partial, error);
    fs::create_directory(partial, error);
    if (error) return write_error(partial, error.message());
    for (const FileOf& file : files)
      CAD_TRY_VOID(create_safetensors(file.path, *file.tensors, metadata_of(contents)));
    return Ok{};
  };
  const auto fill = [&]() -> Status {
    for (const FileOf& file : files)
      CAD_TRY_VOID(write_shards(file.path, *file.tensors, metadata_of(contents)));
    return Ok{};
  };
  Status status = team_.agree(team_.first() ? create() : Status(Ok{}), "saving");
  if (status.ok()) status = team_.agree(fill(), "saving");
  if (!status.ok() && team_.first()) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);  // gives the space back; what was there is untouched
    remove_if_new();
  }
  CAD_TRY_VOID(status);
  return team_.agree(team_.first() ? finish(contents, name) : Status(Ok{}), "saving");
}

// The first device: all tensors are written.
Status CheckpointFolder::finish(const CheckpointContents& contents, const std::string& name) {
  const std::string partial = path_ + "/.tmp-" + name;
  const auto complete = [&]() -> Status {
    CAD_TRY_VOID(write_file_durably(partial + "/state.json", state_text(contents.state)));
    return sync_folder(partial);
  };
  if (Status status = complete(); !status.ok()) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    remove_if_new();
    return status;
  }
  if (!replace_folder(partial, path_ + "/" + name))
    return write_error(path_ + "/" + name, std::strerror(errno));
  return sync_folder(path_);
}

// A folder that this run made and that holds nothing: `rmdir` leaves any other alone.
void CheckpointFolder::remove_if_new() {
  lock_.reset();
  if (created_) ::rmdir(path_.c_str());
}

Status CheckpointFolder::publish_newest(const std::string& name) {
  for (const char* file : {"model.safetensors", "ema.safetensors"}) {
    const std::string target = path_ + "/" + name + "/" + file;
    const std::string partial = path_ + "/.tmp-" + file, link = path_ + "/" + file;
    std::error_code error;
    if (!fs::exists(target, error)) continue;
    fs::remove(partial, error);
    fs::create_hard_link(target, partial, error);
    if (error) fs::create_symlink(name + "/" + file, partial, error);
    if (!error) fs::rename(partial, link, error);
    if (error) return write_error(link, error.message());
  }
  return sync_folder(path_);
}

void CheckpointFolder::remove_old() {
  const std::string newest = fmt::format("{}{:06}", kStep, last_saved_);
  for (const std::string& name : foreign_) {
    if (name != newest) remove_folder(path_, name);
  }
  foreign_.clear();
  if (keep_ <= 0) return;
  std::vector<std::string> names = checkpoints_in(path_);
  while (static_cast<int64_t>(names.size()) > keep_) {
    remove_folder(path_, names.front());
    names.erase(names.begin());
  }
}

Status CheckpointFolder::save(const CheckpointContents& contents) {
  const std::string name = fmt::format("{}{:06}", kStep, contents.state.step);
  CAD_TRY_VOID(write(contents, name));
  last_saved_ = contents.state.step;
  const auto publish = [&]() -> Status {
    CAD_TRY_VOID(publish_newest(name));
    remove_old();
    return Ok{};
  };
  return team_.agree(team_.first() ? publish() : Status(Ok{}), "saving");
}

Status CheckpointFolder::save_best(const CheckpointContents& contents) {
  CAD_TRY_VOID(write(contents, "best"));
  foreign_.erase(std::remove(foreign_.begin(), foreign_.end(), "best"), foreign_.end());
  return Ok{};
}

void CheckpointFolder::discard_after(int64_t step) {
  for (const std::string& name : checkpoints_in(path_)) {
    if (step_of(name) > step) foreign_.push_back(name);
  }
}

}  // namespace cad::backend
