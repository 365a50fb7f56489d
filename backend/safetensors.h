// backend/safetensors.h -- the safetensors format: 8 bytes little-endian header length, a JSON
// object {name: {dtype, shape, data_offsets}}, then the data. Files may be hostile: every check is
// made before a byte of data is touched, memory and time stay linear in the header's real size, and
// each refusal is one line naming file, tensor and reason (E0603).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/mapped_file.h"
#include "backend/shard.h"
#include "backend/stored_type.h"

namespace cad::backend {

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the header's order
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // bytes, from the start of the file
};

// `bytes` is the whole file. Used by the fuzzer as well.
Result<SafetensorsHeader> parse_safetensors(std::string_view bytes, const std::string& path);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  [[nodiscard]] const StoredTensor* find(const std::string& name) const;  // nullptr if absent
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const std::byte* data(const StoredTensor& tensor) const;
  // Converts to f32 (`to` has room for tensor.elements).
  Status read_f32(const StoredTensor& tensor, float* to) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> by_name_;
};

struct TensorToWrite {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // nullptr: others write it all
  // What `data` holds of it, when that is not all; the own elements are written where it counts.
  std::optional<Shard> shard = std::nullopt;
};
// Writes and syncs `path`. Tensors stand in the given order, 8-byte aligned data start.
Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata);
// The two halves of it, for several writers of one file. The first makes it, with its header and
// its whole size on the disk; the second, with the same tensors and metadata, writes what the
// caller has of them and syncs.
Status create_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                          const std::map<std::string, std::string>& metadata);
Status write_shards(const std::string& path, const std::vector<TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata);

std::string shape_text(const std::vector<int64_t>& shape);  // "[256, 192]"

}  // namespace cad::backend
