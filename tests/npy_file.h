// tests/npy_file.h -- the bytes of a .npy file of f32 or i32.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace cad {

template <class T>
std::string npy_file(const std::vector<int>& shape, const std::vector<T>& values) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, int>);
  std::string extents;
  for (const int extent : shape) extents += std::to_string(extent) + ",";
  std::string dict = std::string("{'descr': '") + (std::is_same_v<T, float> ? "<f4" : "<i4") +
                     "', 'fortran_order': False, 'shape': (" + extents + "), }";
  dict.append(117 - dict.size(), ' ');
  std::string file = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dict.size() + 1) +
                     std::string(1, '\0') + dict + "\n";
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return file;
}

}  // namespace cad
