// Any bytes are either a safetensors file whose tensors lie inside it, or one error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/npy.h"
#include "backend/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto parsed = cad::backend::parse_safetensors(bytes, "fuzz");
  if (parsed.ok()) {
    for (const auto& tensor : parsed->tensors) {
      if (tensor.begin > tensor.end || parsed->data_start + tensor.end > size) __builtin_trap();
    }
  } else if (parsed.error().message.find('\n') != std::string::npos) {
    __builtin_trap();
  }
  (void)cad::backend::parse_npy(bytes, "fuzz").ok();
  return 0;
}
