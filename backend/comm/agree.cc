// backend/comm/agree.cc -- sizes and digests first; the texts travel only when they differ.
#include "backend/comm/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace cad::backend {

namespace {

constexpr size_t kMostText = 1U << 20;  // of a text that is sent
constexpr size_t kMostLine = 100;       // of a line that is shown

uint64_t fnv(const std::string& text, uint64_t h) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return h;
}

// Every device's bytes, in order. As words: a gather copies them as they are.
std::vector<char> gather(Communicator& comm, const std::string& label, std::vector<char> mine) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllGather;
  for (int d = 0; d < comm.world().devices(); ++d) call.members.push_back(d);
  call.dtype = ir::DType::kBool;
  call.inner = static_cast<int64_t>(mine.size());
  call.label = label;
  std::vector<char> all(mine.size() * static_cast<size_t>(comm.world().devices()));
  if (!comm.run(call, mine.data(), all.data())) throw WorldFailed(comm.world());
  return all;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string shown(const std::vector<std::string>& lines, size_t at) {
  if (at >= lines.size()) return "nothing";
  const std::string& line = lines[at];
  return "`" + (line.size() > kMostLine ? line.substr(0, kMostLine) + ".." : line) + "`";
}

}  // namespace

std::optional<std::string> agree(Communicator& comm, const std::string& name,
                                 const std::string& text) {
  struct Summary {
    uint64_t size, digest, more;
    bool operator==(const Summary&) const = default;
  };
  const Summary mine{text.size(), fnv(text, 14695981039346656037ULL), fnv(text, fnv(name, 7))};
  std::vector<char> bytes(sizeof mine);
  std::memcpy(bytes.data(), &mine, sizeof mine);
  const std::vector<char> all = gather(comm, name, bytes);
  std::vector<Summary> summaries(static_cast<size_t>(comm.world().devices()));
  std::memcpy(summaries.data(), all.data(), all.size());
  size_t longest = 0;
  size_t other = 0;  // the first device that is not like device 0
  for (size_t d = 0; d < summaries.size(); ++d) {
    longest = std::max(longest, std::min(static_cast<size_t>(summaries[d].size), kMostText));
    if (other == 0 && !(summaries[d] == summaries[0])) other = d;
  }
  if (other == 0) return std::nullopt;
  std::vector<char> padded(longest);
  std::memcpy(padded.data(), text.data(), std::min(text.size(), longest));
  const std::vector<char> texts = gather(comm, name, padded);
  const auto text_of = [&](size_t d) {
    const char* from = texts.data() + d * longest;
    return lines_of(std::string(from, std::min(static_cast<size_t>(summaries[d].size), longest)));
  };
  const std::vector<std::string> first = text_of(0), second = text_of(other);
  size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const std::string both = fmt::format("{} and {}", comm.world().name_of(0),
                                       comm.world().name_of(static_cast<int>(other)));
  if (at >= first.size() && at >= second.size())
    return fmt::format("{} disagree about the {}", both, name);
  const std::string where =
      first.size() > 1 || second.size() > 1 ? fmt::format(" in line {}", at + 1) : "";
  return fmt::format("{} disagree about the {}{}: {} and {}", both, name, where, shown(first, at),
                     shown(second, at));
}

}  // namespace cad::backend
