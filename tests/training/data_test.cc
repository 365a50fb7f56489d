// Data sources: windows, orders, conversions, and every refusal with its numbers.
#include "backend/data.h"

#include <algorithm>
#include <set>

#include "backend/npy.h"
#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

using testing::bytes_of;
using testing::TemporaryFolder;

ir::DataName name_of(const std::string& name, ir::DType dtype, std::vector<std::string> dims) {
  ir::DataName result;
  result.name = name;
  result.dtype = dtype;
  for (const std::string& dim : dims) result.sizes.push_back(ir::Size::symbol(dim));
  result.dims = std::move(dims);
  return result;
}

ir::DataSource tokens_of(ir::DataSource::Kind kind, std::vector<std::string> files,
                         bool labels = true) {
  ir::DataSource source;
  source.kind = kind;
  source.files = std::move(files);
  source.names.push_back(name_of("x", ir::DType::kI32, {"B", "T"}));
  if (labels) source.names.push_back(name_of("y", ir::DType::kI32, {"B", "T"}));
  return source;
}

DataOptions options_in(const TemporaryFolder& folder, ir::Bindings bindings,
                       bool shuffled = false) {
  return {std::move(bindings), folder.path(), 1, shuffled};
}

std::vector<int32_t> load(const DataSet& set, int64_t first, size_t column) {
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::byte*> pointers;
  for (const DataColumn& c : set.columns()) buffers.emplace_back(static_cast<size_t>(c.bytes()));
  for (auto& buffer : buffers) pointers.push_back(buffer.data());
  set.load(first, set.batch(), pointers);
  std::vector<int32_t> values(buffers[column].size() / 4);
  std::memcpy(values.data(), buffers[column].data(), buffers[column].size());
  return values;
}

Diagnostic refused(const ir::DataSource& source, const DataOptions& options) {
  auto set = DataSet::open({source}, options);
  EXPECT_FALSE(set.ok());
  return set.ok() ? make_error(DiagId::E0001, "accepted", 0) : set.error();
}

using Kind = ir::DataSource::Kind;

TEST(Data, TextWindowsAndWrap) {
  TemporaryFolder folder;
  folder.write("a.txt", "abcdefghij");  // 10 tokens, T 3: 3 windows
  auto set =
      DataSet::open({tokens_of(Kind::kText, {"a.txt"})}, options_in(folder, {{"B", 2}, {"T", 3}}));
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->rows(), 3);
  EXPECT_EQ(set->tokens_per_row(), 3);
  EXPECT_EQ(load(*set, 0, 0), (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  EXPECT_EQ(load(*set, 0, 1), (std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g'}));
  EXPECT_EQ(load(*set, 2, 0), (std::vector<int32_t>{'g', 'h', 'i', 'a', 'b', 'c'}));
  EXPECT_EQ(load(*set, 2, 1), (std::vector<int32_t>{'h', 'i', 'j', 'b', 'c', 'd'}));
}

TEST(Data, ShuffledEpochsArePermutationsAndResumable) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 101; ++i) text += static_cast<char>(i);
  folder.write("a.txt", text);
  auto set = DataSet::open({tokens_of(Kind::kText, {"a.txt"})},
                           options_in(folder, {{"B", 1}, {"T", 1}}, true));
  ASSERT_TRUE(set.ok());
  ASSERT_EQ(set->rows(), 100);
  std::vector<int32_t> epochs[2];
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<int32_t> seen;
    for (int n = 0; n < 100; ++n) {
      const int32_t x = load(*set, epoch * 100 + n, 0)[0];
      EXPECT_EQ(load(*set, epoch * 100 + n, 1)[0], x + 1);
      seen.insert(x);
      epochs[epoch].push_back(x);
    }
    EXPECT_EQ(seen.size(), 100U);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
  auto again = DataSet::open({tokens_of(Kind::kText, {"a.txt"})},
                             options_in(folder, {{"B", 1}, {"T", 1}}, true));
  EXPECT_EQ(load(*again, 137, 0)[0], epochs[1][37]);
}

TEST(Data, PermutationsOfEverySize) {
  for (int64_t size : {1, 2, 3, 5, 16, 17, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t to = permute(i, size, 99);
      EXPECT_GE(to, 0);
      EXPECT_LT(to, size);
      seen.insert(to);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
  }
}

TEST(Data, ShorterThanAWindowSaysHowMuch) {
  TemporaryFolder folder;
  for (const int found : {0, 1, 5}) {
    folder.write("a.txt", std::string(static_cast<size_t>(found), 'x'));
    const Diagnostic error =
        refused(tokens_of(Kind::kText, {"a.txt"}), options_in(folder, {{"B", 1}, {"T", 5}}));
    EXPECT_EQ(error.id, DiagId::E0606);
    EXPECT_EQ(error.message, "`" + folder.file("a.txt") + "` is shorter than one window: found " +
                                 std::to_string(found) + " bytes, needed 6");
  }
  folder.write("a.txt", "xxxxxx");
  EXPECT_TRUE(
      DataSet::open({tokens_of(Kind::kText, {"a.txt"})}, options_in(folder, {{"B", 1}, {"T", 5}}))
          .ok());
}

TEST(Data, TokenWidths) {
  TemporaryFolder folder;
  folder.write("a.bin", bytes_of<uint16_t>({1, 2, 65535, 4}));
  folder.write("b.bin", bytes_of<uint32_t>({1, 70000, 3}));
  folder.write("odd.bin", "12345");
  auto narrow = DataSet::open({tokens_of(Kind::kTokens, {"a.bin"})},
                              options_in(folder, {{"B", 1}, {"T", 3}}));
  ASSERT_TRUE(narrow.ok());
  EXPECT_EQ(load(*narrow, 0, 0), (std::vector<int32_t>{1, 2, 65535}));
  ir::DataSource wide = tokens_of(Kind::kTokens, {"b.bin"});
  wide.wide_tokens = true;
  auto set = DataSet::open({wide}, options_in(folder, {{"B", 1}, {"T", 2}}));
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(load(*set, 0, 1), (std::vector<int32_t>{70000, 3}));
  const Diagnostic odd =
      refused(tokens_of(Kind::kTokens, {"odd.bin"}), options_in(folder, {{"B", 1}, {"T", 1}}));
  EXPECT_EQ(odd.id, DiagId::E0605);
  EXPECT_NE(odd.message.find("has 5 bytes, not a multiple of 2"), std::string::npos);
}

TEST(Data, IdsOutsideAreFoundBeforeTraining) {
  TemporaryFolder folder;
  folder.write("a.bin", bytes_of<uint16_t>({1, 2, 3, 300, 4}));
  ir::DataSource source = tokens_of(Kind::kTokens, {"a.bin"});
  source.names[0].id_limits = {ir::Size::symbol("V")};
  const Diagnostic error = refused(source, options_in(folder, {{"B", 1}, {"T", 2}, {"V", 256}}));
  EXPECT_EQ(error.id, DiagId::E0607);
  EXPECT_EQ(error.message,
            "id 300 at token 3 of `" + folder.file("a.bin") + "` is outside `V` = 256");
  EXPECT_TRUE(DataSet::open({source}, options_in(folder, {{"B", 1}, {"T", 2}, {"V", 301}})).ok());
  folder.write("wide.bin", bytes_of<uint32_t>({1, 0xFFFFFFFFU, 3}));
  ir::DataSource wide = tokens_of(Kind::kTokens, {"wide.bin"});
  wide.wide_tokens = true;
  EXPECT_EQ(refused(wide, options_in(folder, {{"B", 1}, {"T", 2}})).id, DiagId::E0608);
}

// H5: 70,000 words do not fit 16 bits; every id of 32 bits is looked at, the first bad one is
// named.
TEST(Data, IdsOfMoreThan16Bits) {
  TemporaryFolder folder;
  folder.write("a.bin", bytes_of<uint16_t>({1, 2, 3, 4}));
  const ir::Bindings sizes = {{"B", 1}, {"T", 3}, {"V", 70'000}};
  ir::DataSource source = tokens_of(Kind::kTokens, {"a.bin"});
  source.names[0].id_limits = {ir::Size::symbol("V")};
  const Diagnostic narrow = refused(source, options_in(folder, sizes));
  EXPECT_EQ(narrow.id, DiagId::E0605);
  EXPECT_EQ(narrow.message, "`" + folder.file("a.bin") +
                                "` is read as u16, which does not hold every id of `V` = 70000");
  const ir::Bindings fits = {{"B", 1}, {"T", 3}, {"V", 65'536}};
  EXPECT_TRUE(DataSet::open({source}, options_in(folder, fits)).ok());
  source.wide_tokens = true;
  const struct {
    uint32_t id;
    std::string says;
  } cases[] = {{69'999, ""}, {70'000, "70000"}, {135'535, "135535"}, {0xFFFFFFFFU, "4294967295"}};
  for (const auto& c : cases) {
    folder.write("a.bin", bytes_of<uint32_t>({65'535, 65'536, c.id, c.id}));
    auto set = DataSet::open({source}, options_in(folder, sizes));
    ASSERT_EQ(set.ok(), c.says.empty()) << c.id;
    if (set.ok()) {
      EXPECT_EQ(load(*set, 0, 0), (std::vector<int32_t>{65'535, 65'536, 69'999}));
      continue;
    }
    EXPECT_EQ(set.error().id, DiagId::E0607);
    EXPECT_EQ(set.error().message, "id " + c.says + " at token 2 of `" + folder.file("a.bin") +
                                       "` is outside `V` = 70000");
  }
}

TEST(Data, GlobsInNameOrderAndNoWindowCrossesTwo) {
  TemporaryFolder folder;
  folder.write("p2.txt", "uvwxyz");
  folder.write("p1.txt", "abcde");
  auto set =
      DataSet::open({tokens_of(Kind::kText, {"p*.txt"})}, options_in(folder, {{"B", 4}, {"T", 2}}));
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->rows(), 4);  // (5-1)//2 + (6-1)//2
  EXPECT_EQ(load(*set, 0, 0), (std::vector<int32_t>{'a', 'b', 'c', 'd', 'u', 'v', 'w', 'x'}));
  const Diagnostic none =
      refused(tokens_of(Kind::kText, {"q*.txt"}), options_in(folder, {{"B", 1}, {"T", 2}}));
  EXPECT_EQ(none.id, DiagId::E0601);
  EXPECT_EQ(none.exit_code, kExitNoInput);
}

TEST(Data, SparseFileBeyond4GiB) {
  TemporaryFolder folder;
  const std::string path = folder.file("big.bin");
  const int64_t at = (int64_t{9} << 29) + 6;  // 4.5 GiB and a bit
  {
    std::ofstream out(path, std::ios::binary);
    out.seekp(at);
    const uint16_t marker = 12345, after = 7;
    out.write(reinterpret_cast<const char*>(&marker), 2);
    out.write(reinterpret_cast<const char*>(&after), 2);
  }
  auto set = DataSet::open({tokens_of(Kind::kTokens, {"big.bin"})},
                           options_in(folder, {{"B", 1}, {"T", 1}}));
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->rows(), at / 2 + 1);
  EXPECT_EQ(load(*set, at / 2, 0)[0], 12345);
  EXPECT_EQ(load(*set, at / 2, 1)[0], 7);
}

ir::DataSource npy_source(std::vector<std::string> files) {
  ir::DataSource source;
  source.kind = Kind::kNpy;
  source.files = std::move(files);
  source.names.push_back(name_of("x", ir::DType::kF32, {"B", "X"}));
  source.names.push_back(name_of("y", ir::DType::kI32, {"B"}));
  return source;
}

TEST(Data, NpyConvertsAndChecks) {
  TemporaryFolder folder;
  const std::vector<uint8_t> x = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> y = {0, -1, 2};
  ASSERT_TRUE(write_npy(folder.file("x.npy"), StoredType::kU8, {3, 2}, x.data()).ok());
  ASSERT_TRUE(write_npy(folder.file("y.npy"), StoredType::kI64, {3}, y.data()).ok());
  ir::DataSource source = npy_source({"x.npy", "y.npy"});
  source.names[1].id_limits = {ir::Size(3)};
  const ir::Bindings bindings = {{"B", 2}, {"X", 2}};
  auto set = DataSet::open({source}, options_in(folder, bindings));
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(load(*set, 1, 1), (std::vector<int32_t>{-1, 2}));
  const std::vector<int32_t> bits = load(*set, 1, 0);
  std::vector<float> floats(4);
  std::memcpy(floats.data(), bits.data(), 16);
  EXPECT_EQ(floats, (std::vector<float>{3, 4, 5, 6}));

  source.names[1].id_limits = {ir::Size(2)};
  EXPECT_EQ(refused(source, options_in(folder, bindings)).message,
            "id 2 at element 2 of `" + folder.file("y.npy") + "` is outside a dim of size 2");
  const std::vector<int64_t> far = {0, int64_t{1} << 40, 0};
  ASSERT_TRUE(write_npy(folder.file("y.npy"), StoredType::kI64, {3}, far.data()).ok());
  const Diagnostic wide = refused(npy_source({"x.npy", "y.npy"}), options_in(folder, bindings));
  EXPECT_EQ(wide.id, DiagId::E0608);
  EXPECT_EQ(wide.message,
            "1099511627776 at element 1 of `" + folder.file("y.npy") + "` does not fit i32 of `y`");
  const std::vector<double> fraction = {0, 0.5, 0};
  ASSERT_TRUE(write_npy(folder.file("y.npy"), StoredType::kF64, {3}, fraction.data()).ok());
  EXPECT_EQ(refused(npy_source({"x.npy", "y.npy"}), options_in(folder, bindings)).id,
            DiagId::E0608);
  ASSERT_TRUE(write_npy(folder.file("y.npy"), StoredType::kI64, {2}, y.data()).ok());
  EXPECT_EQ(refused(npy_source({"x.npy", "y.npy"}), options_in(folder, bindings)).id,
            DiagId::E0609);
  EXPECT_EQ(
      refused(npy_source({"x.npy", "y.npy"}), options_in(folder, {{"B", 2}, {"X", 3}})).message,
      "`" + folder.file("x.npy") + "` is [3, 2], `x` needs [B, X = 3]");
}

TEST(Data, NpyFortranOrderAndByteOrder) {
  // [[1, 2, 3], [4, 5, 6]] in Fortran order, big-endian i2.
  std::string dict = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
  dict.append(117 - dict.size(), ' ');
  dict += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dict.size());
  file += '\0';
  file += dict;
  for (const char v : {1, 4, 2, 5, 3, 6}) file += std::string("\0", 1) + v;
  TemporaryFolder folder;
  auto opened = NpyFile::open(folder.write("f.npy", file));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  int32_t row[3];
  std::string ignored;
  EXPECT_EQ(opened->read_row(1, ir::DType::kI32, reinterpret_cast<std::byte*>(row), ignored), -1);
  EXPECT_EQ(row[0], 4);
  EXPECT_EQ(row[1], 5);
  EXPECT_EQ(row[2], 6);
}

TEST(Data, BrokenNpyHeaders) {
  const auto refusal = [](const std::string& bytes) {
    auto parsed = parse_npy(bytes, "a.npy");
    if (parsed.ok()) return std::string("accepted");
    EXPECT_EQ(parsed.error().id, DiagId::E0604);
    return parsed.error().message.substr(
        std::string("`a.npy` is not a readable npy file: ").size());
  };
  const auto with = [](const std::string& dict, const std::string& data = "") {
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dict.size()) +
           std::string(1, '\0') + dict + data;
  };
  EXPECT_EQ(refusal("hello"), "it does not start with the magic bytes");
  EXPECT_EQ(refusal(std::string("\x93NUMPY\x09\x00\x00\x00", 10)), "unknown format version 9");
  EXPECT_EQ(refusal(std::string("\x93NUMPY\x01\x00\xff\xff", 10)),
            "header length 65535 is beyond the file");
  EXPECT_EQ(refusal(with("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "12345678")),
            "accepted");
  EXPECT_EQ(refusal(with("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "1234")),
            "accepted");
  EXPECT_EQ(refusal(with("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234")),
            "[2] needs 8 bytes of data, found 4");
  EXPECT_EQ(refusal(with("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }")),
            "unknown dtype `|O`");
  EXPECT_EQ(refusal(with("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }")),
            "dtype `<c8` is not a number or bool");
  EXPECT_EQ(refusal(with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }")),
            "`descr` is not a plain type (structured arrays are not read)");
  EXPECT_EQ(refusal(with("{'descr': '<f4', 'shape': (1,)}")),
            "its header lacks `descr`, `fortran_order` or `shape`");
  EXPECT_EQ(refusal(with("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }")),
            "`shape` is not a tuple of sizes");
  EXPECT_EQ(refusal(with(
                "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }")),
            "the product of its sizes is beyond 63 bits");
}

TEST(Data, CsvColumnsAndErrors) {
  TemporaryFolder folder;
  folder.write("a.csv", "x0,x1,y\n1.5, -2,0\n\n3,4,2\r\n");
  ir::DataSource source = npy_source({"a.csv"});
  source.kind = Kind::kCsv;
  auto set = DataSet::open({source}, options_in(folder, {{"B", 2}, {"X", 2}}));
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->rows(), 2);
  EXPECT_EQ(load(*set, 0, 1), (std::vector<int32_t>{0, 2}));
  folder.write("a.csv", "1,2,0\n1,two,0\n");
  EXPECT_EQ(refused(source, options_in(folder, {{"B", 2}, {"X", 2}})).message,
            "`" + folder.file("a.csv") + "` line 2: field 2 is `two`, not a number");
  folder.write("a.csv", "1,2,0\n1,2\n");
  EXPECT_EQ(refused(source, options_in(folder, {{"B", 2}, {"X", 2}})).message,
            "`" + folder.file("a.csv") + "` line 2: found 2 fields, needed 3");
  folder.write("a.csv", "1,2,0.5\n");
  EXPECT_EQ(refused(source, options_in(folder, {{"B", 2}, {"X", 2}})).id, DiagId::E0608);
  folder.write("a.csv", "x,y,z\n");
  EXPECT_EQ(refused(source, options_in(folder, {{"B", 2}, {"X", 2}})).id, DiagId::E0606);
  // A broken first row is not taken for a header, which would lose it silently.
  for (const std::string first : {"1,,0", "1,1e999,0", "1,two,0"}) {
    folder.write("a.csv", first + "\n1,2,0\n");
    const Diagnostic error = refused(source, options_in(folder, {{"B", 2}, {"X", 2}}));
    EXPECT_EQ(error.id, DiagId::E0610) << first;
    ASSERT_EQ(error.notes.size(), 1U) << first;
    EXPECT_EQ(error.notes[0], "a first line is a header when none of its fields is a number");
  }
}

TEST(Data, TuplesDrawARowOfEachInItsOwnOrder) {
  TemporaryFolder folder;
  folder.write("a.txt", "abcdefg");
  folder.write("b.txt", "012");
  ir::DataSource first = tokens_of(Kind::kText, {"a.txt"}, false),
                 second = tokens_of(Kind::kText, {"b.txt"}, false);
  second.names[0].name = "z";
  auto set = DataSet::open({first, second}, options_in(folder, {{"B", 4}, {"T", 1}}));
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->rows(), 6);
  EXPECT_EQ(load(*set, 0, 0), (std::vector<int32_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(load(*set, 0, 1), (std::vector<int32_t>{'0', '1', '0', '1'}));
}

TEST(Data, SyntheticIsAFunctionOfTheRow) {
  TemporaryFolder folder;
  ir::DataSource source;
  source.kind = Kind::kSynthetic;
  source.names.push_back(name_of("x", ir::DType::kI32, {"B", "T"}));
  source.names[0].id_limits = {ir::Size(10)};
  auto set = DataSet::open({source}, options_in(folder, {{"B", 3}, {"T", 50}}));
  ASSERT_TRUE(set.ok());
  EXPECT_TRUE(set->endless());
  const std::vector<int32_t> all = load(*set, 0, 0), later = load(*set, 1, 0);
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](int32_t v) { return v >= 0 && v < 10; }));
  EXPECT_TRUE(std::equal(all.begin() + 50, all.end(), later.begin()));
  EXPECT_NE(std::set<int32_t>(all.begin(), all.end()).size(), 1U);
}

}  // namespace
}  // namespace cad::backend
