// Safetensors: what is read and written exactly, and what is refused with which words.
#include "backend/safetensors.h"

#include <cmath>
#include <limits>

#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

using testing::TemporaryFolder;

std::string with_header(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

std::string refusal(const std::string& bytes) {
  auto parsed = parse_safetensors(bytes, "a.safetensors");
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.error().id, DiagId::E0603);
  EXPECT_EQ(parsed.error().exit_code, kExitRunFailed);
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  const std::string prefix = "`a.safetensors` is not a valid safetensors file: ";
  EXPECT_EQ(parsed.error().message.substr(0, prefix.size()), prefix);
  return parsed.error().message.substr(prefix.size());
}

std::string header_refusal(const std::string& header, const std::string& data = "") {
  return refusal(with_header(header, data));
}

TEST(Safetensors, RoundTripOfOddities) {
  TemporaryFolder folder;
  const std::vector<float> values = {1.5F,   -2.0F, std::numeric_limits<float>::infinity(),
                                     1e-40F, 0,     7};
  const int32_t whole = -5;
  std::vector<TensorToWrite> tensors = {
      {"b \"quoted\" \xC3\xA9", StoredType::kF32, {2, 3}, values.data()},
      {"scalar", StoredType::kI32, {}, &whole},
      {"empty", StoredType::kF32, {0}, nullptr},
      {"empty too", StoredType::kF32, {2, 0}, nullptr},
      {"a", StoredType::kF32, {1}, values.data()}};
  const std::string path = folder.file("x.safetensors");
  ASSERT_TRUE(write_safetensors(path, tensors, {{"note", "say \"\xC3\xA9\""}}).ok());
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->header().data_start % 8, 0U);
  EXPECT_EQ(file->header().metadata.at("note"), "say \"\xC3\xA9\"");
  ASSERT_EQ(file->header().tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& read = file->header().tensors[i];
    EXPECT_EQ(read.name, tensors[i].name);
    EXPECT_EQ(read.shape, tensors[i].shape);
    EXPECT_EQ(read.type, tensors[i].type);
    if (read.elements == 0) continue;
    EXPECT_EQ(
        0, std::memcmp(file->data(read), tensors[i].data, static_cast<size_t>(read.elements) * 4));
  }
  EXPECT_EQ(file->find("scalar")->elements, 1);
  EXPECT_EQ(file->find("empty too")->elements, 0);
  EXPECT_EQ(file->find("nobody"), nullptr);
}

TEST(Safetensors, AcceptsPaddingOrderAndNoMetadata) {
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"shape":[1],"data_offsets":[0,4],"dtype":"F32"}}      )";
  EXPECT_EQ(header_refusal(header, "12345678"), "accepted");
  EXPECT_EQ(header_refusal("{}"), "accepted");
}

TEST(Safetensors, ConvertsStoredTypes) {
  TemporaryFolder folder;
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000};
  const std::vector<uint16_t> f16 = {0x3c00, 0x0001};
  const std::vector<double> f64 = {0.5, 1e300};
  const std::vector<int64_t> i64 = {-3, 4};
  const std::string path = folder.file("x.safetensors");
  ASSERT_TRUE(write_safetensors(path,
                                {{"bf16", StoredType::kBF16, {2}, bf16.data()},
                                 {"f16", StoredType::kF16, {2}, f16.data()},
                                 {"f64", StoredType::kF64, {2}, f64.data()},
                                 {"i64", StoredType::kI64, {2}, i64.data()}},
                                {})
                  .ok());
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  float to[2];
  ASSERT_TRUE(file->read_f32(*file->find("bf16"), to).ok());
  EXPECT_EQ(to[0], 1.0F);
  EXPECT_EQ(to[1], -2.0F);
  ASSERT_TRUE(file->read_f32(*file->find("f16"), to).ok());
  EXPECT_EQ(to[0], 1.0F);
  EXPECT_EQ(to[1], 0x1.0p-24F);
  ASSERT_TRUE(file->read_f32(*file->find("i64"), to).ok());
  EXPECT_EQ(to[0], -3.0F);
  auto bad = file->read_f32(*file->find("f64"), to);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("element 1 is 1e+300"), std::string::npos)
      << bad.error().message;
}

TEST(Safetensors, RefusesHostileLengths) {
  const std::string tail = "{}";
  const auto prefix = [&](unsigned char top) {
    return std::string(7, '\0') + static_cast<char>(top) + tail;
  };
  EXPECT_EQ(refusal(prefix(0x80)),
            "header length 9223372036854775808 is beyond the file's 10 bytes");
  EXPECT_EQ(refusal(std::string(8, '\xff') + tail),
            "header length 18446744073709551615 is beyond the file's 10 bytes");
  EXPECT_EQ(refusal(std::string("\x03\0\0\0\0\0\0\0", 8) + tail),
            "header length 3 is beyond the file's 10 bytes");
  EXPECT_EQ(refusal(std::string(8, '\0')), "the header is empty");
  EXPECT_EQ(refusal("1234567"), "7 bytes cannot hold the header length");
  EXPECT_EQ(refusal(""), "0 bytes cannot hold the header length");
}

TEST(Safetensors, RefusesBrokenJson) {
  EXPECT_EQ(header_refusal("not json"), "the header is not a JSON object");
  EXPECT_EQ(header_refusal("[]"), "the header is not a JSON object");
  EXPECT_EQ(header_refusal("{"), "the header is not valid JSON at byte 2");
  EXPECT_EQ(header_refusal("{\"a\":" + std::string(100'000, '[')),
            "tensor `a`: its entry is not an object");
  EXPECT_EQ(header_refusal(R"({"a":{"shape":)" + std::string(100'000, '[')),
            "tensor `a`: `shape` is not a list of sizes");
  EXPECT_EQ(header_refusal(R"({"__metadata__":{"a":1}})"), "`__metadata__`: `a` is not a string");
}

TEST(Safetensors, RefusesBrokenEntries) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  };
  const std::string data(8, 'x');
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[0,8]"), data), "accepted");
  EXPECT_EQ(header_refusal(entry("\"F99\"", "[2]", "[0,8]"), data),
            "tensor `w`: unknown dtype `F99`");
  EXPECT_EQ(header_refusal(entry("7", "[2]", "[0,8]"), data),
            "tensor `w`: `dtype` is not a string");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "\"2\"", "[0,8]"), data),
            "tensor `w`: `shape` is not a list of sizes");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[-2]", "[0,8]"), data),
            "tensor `w`: a negative number in `shape`");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2.5]", "[0,8]"), data),
            "tensor `w`: `shape` holds 2.5, not a whole number of 64 bits");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[3]", "[0,8]"), data),
            "tensor `w`: [3] of F32 needs 12 bytes, its offsets give 8");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[4294967296,4294967296]", "[0,8]"), data),
            "tensor `w`: the product of its sizes is beyond 64 bits");
  EXPECT_EQ(header_refusal(entry("\"F64\"", "[2305843009213693952]", "[0,8]"), data),
            "tensor `w`: its bytes are beyond 64 bits");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[8,0]"), data),
            "tensor `w`: begins at 8 after its end 0");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[-8,0]"), data),
            "tensor `w`: a negative number in `data_offsets`");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[0,18446744073709551615]"), data),
            "tensor `w`: ends at byte 18446744073709551615 of 8 bytes of data");
  EXPECT_EQ(
      header_refusal(entry("\"F32\"", "[2]", "[0,184467440737095516160]"), data).substr(0, 35),
      "tensor `w`: `data_offsets` holds 18");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[0,8,9]"), data),
            "tensor `w`: `data_offsets` has more than two numbers");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[0]"), data),
            "tensor `w`: `data_offsets` needs two numbers");
  EXPECT_EQ(header_refusal(R"({"w":{"dtype":"F32","shape":[2]}})", data),
            "tensor `w`: no `data_offsets`");
  EXPECT_EQ(header_refusal(entry("\"F32\"", "[2]", "[0,8]"), data + "more"),
            "4 bytes of data after the last tensor");
}

TEST(Safetensors, RefusesDuplicatesOverlapsAndHoles) {
  const std::string one = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(header_refusal("{" + one + "," + one + "}", "1234"), "duplicate tensor name `a`");
  EXPECT_EQ(header_refusal(
                R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"),
            "tensor `a`: duplicate key `dtype`");
  EXPECT_EQ(header_refusal("{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                           "123456"),
            "tensor `b`: overlaps `a`");
  EXPECT_EQ(header_refusal("{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})",
                           "1234567890"),
            "tensor `b`: a hole of 2 bytes before it");
  EXPECT_EQ(header_refusal("{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                           "1234"),
            "tensor `b`: overlaps `a`");
  // Two empty tensors at one place are no aliases.
  EXPECT_EQ(
      header_refusal(
          "{" + one +
              R"(,"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"c":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
          "1234"),
      "accepted");
}

TEST(Safetensors, MissingFileIsNoInput) {
  auto file = SafetensorsFile::open("/nowhere/x.safetensors");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().id, DiagId::E0601);
  EXPECT_EQ(file.error().exit_code, kExitNoInput);
}

TEST(StoredType, HalfConversionsRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), half) << bits;
  }
  EXPECT_EQ(f32_to_f16(65519.0F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f32_to_f16(1.0F + 0x1.0p-11F), 0x3c00);  // a tie goes to even
  EXPECT_EQ(f32_to_f16(1.0F + 0x1.8p-10F), 0x3c02);
  EXPECT_EQ(f32_to_bf16(1.00390625F), 0x3f80);  // 1 + 2^-8: a tie
  EXPECT_EQ(f32_to_bf16(1.01171875F), 0x3f82);  // 1 + 3 * 2^-8
}

}  // namespace
}  // namespace cad::backend
