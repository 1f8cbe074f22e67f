#include "data/creation/chunk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

constexpr char kMagic[8] = {'B', 'E', 'R', 'T', 'C', 'H', 'K', '1'};

struct ChunkHeader {
  char magic[8];
  uint64_t id_bytes, targets;
  CorpusStatistics statistics;
  uint64_t checksum;  // XXH3-64 of the header before and of the table
};
static_assert(sizeof(ChunkHeader) == 32 + sizeof(CorpusStatistics));

template <class Value>
void append(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Id>
void append_ids(std::string& bytes, const std::vector<int32_t>& ids) {
  const size_t start = bytes.size();
  bytes.resize(start + ids.size() * sizeof(Id));
  for (size_t i = 0; i < ids.size(); ++i) {
    const Id id = static_cast<Id>(ids[i]);
    std::memcpy(bytes.data() + start + i * sizeof(Id), &id, sizeof id);
  }
}

uint64_t header_checksum(const ChunkHeader& header, const void* table, size_t table_bytes) {
  return XXH3_64bits_withSeed(table, table_bytes, XXH3_64bits(&header, offsetof(ChunkHeader, checksum)));
}

}  // namespace

void SectionFigures::add(const SectionFigures& more) {
  documents += more.documents;
  sentences += more.sentences;
  tokens += more.tokens;
}

void write_chunk(const std::string& path, const std::vector<TokenizedDocument>& documents,
                 const std::vector<uint32_t>& targets, size_t target_count, int64_t vocab_size,
                 const CorpusStatistics& statistics) {
  const bool wide = vocab_size > TokenizedDocuments::kNarrowVocabulary;
  std::vector<std::vector<uint32_t>> by_target(target_count);
  for (uint32_t i = 0; i < targets.size(); ++i) by_target[targets[i]].push_back(i);
  ChunkHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.id_bytes = wide ? 4 : 2;
  header.targets = target_count;
  header.statistics = statistics;
  std::vector<ChunkFile::SectionEntry> table(target_count);
  const size_t table_bytes = target_count * sizeof(ChunkFile::SectionEntry);
  AtomicFile file(path);
  file.write(&header, sizeof header);  // reserves the place
  file.write(table.data(), table_bytes);
  std::string section;
  for (size_t target = 0; target < target_count; ++target) {
    section.clear();
    ChunkFile::SectionEntry& entry = table[target];
    for (const uint32_t i : by_target[target]) {
      const TokenizedDocument& document = documents[i];
      if (document.size() == 0) continue;
      ++entry.documents;
      entry.sentences += document.size();
      entry.tokens += document.ids.size();
      append(section, static_cast<uint32_t>(document.size()));
      for (size_t s = 0; s < document.size(); ++s) append(section, static_cast<uint32_t>(document.sentence(s).size()));
      wide ? append_ids<uint32_t>(section, document.ids) : append_ids<uint16_t>(section, document.ids);
    }
    entry.start = static_cast<uint64_t>(file.size());
    entry.bytes = section.size();
    entry.checksum = XXH3_64bits(section.data(), section.size());
    file.write(section);
  }
  header.checksum = header_checksum(header, table.data(), table_bytes);
  file.write_at(0, &header, sizeof header);
  file.write_at(sizeof header, table.data(), table_bytes);
  file.commit();
}

ChunkFile::ChunkFile(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_) {
    if (errno == ENOENT) throw InputMissing(path + ": no such file");
    throw_io_error(path, "open", errno);
  }
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) throw_io_error(path, "read", errno);
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  const auto bad = [&] { return DataError(path, 0, "damaged: remove the file and run the command again."); };
  ChunkHeader header{};
  if (file_bytes < sizeof header) throw bad();
  std::memcpy(&header, read_bytes(0, sizeof header).data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.targets > file_bytes / sizeof(SectionEntry))
    throw bad();
  const uint64_t table_bytes = header.targets * sizeof(SectionEntry);
  if (sizeof header + table_bytes > file_bytes) throw bad();
  const std::string table = read_bytes(sizeof header, table_bytes);
  if (header.checksum != header_checksum(header, table.data(), table.size())) throw bad();
  table_.resize(header.targets);
  std::memcpy(table_.data(), table.data(), table.size());
  id_bytes_ = header.id_bytes;
  statistics_ = header.statistics;
}

SectionFigures ChunkFile::figures(size_t target) const {
  const SectionEntry& entry = table_.at(target);
  return {.documents = entry.documents, .sentences = entry.sentences, .tokens = entry.tokens};
}

void ChunkFile::read(size_t target, TokenizedDocuments& documents) const {
  const SectionEntry& entry = table_.at(target);
  const std::string section = read_bytes(entry.start, entry.bytes);
  if (entry.checksum != XXH3_64bits(section.data(), section.size())) {
    throw DataError(path_, static_cast<int64_t>(entry.start),
                    "the checksum does not match: remove the file and run the command again.");
  }
  std::vector<uint32_t> lengths;
  std::vector<int32_t> ids;
  const char* at = section.data();
  const auto take = [&](void* to, size_t bytes) {
    std::memcpy(to, at, bytes);
    at += bytes;
  };
  for (uint64_t document = 0; document < entry.documents; ++document) {
    uint32_t sentences = 0;
    take(&sentences, sizeof sentences);
    lengths.resize(sentences);
    take(lengths.data(), sentences * sizeof(uint32_t));
    for (const uint32_t length : lengths) {
      ids.resize(length);
      if (id_bytes_ == 4) {
        take(ids.data(), length * sizeof(int32_t));
      } else {
        for (int32_t& id : ids) {
          uint16_t narrow = 0;
          take(&narrow, sizeof narrow);
          id = narrow;
        }
      }
      documents.add_sentence(ids);
    }
    documents.end_document();
  }
}

std::string ChunkFile::read_bytes(uint64_t start, uint64_t bytes) const {
  std::string result(bytes, '\0');
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file_.get(), result.data() + done, bytes - done, static_cast<off_t>(start + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error(path_, "read", errno);
    if (got == 0)
      throw DataError(path_, static_cast<int64_t>(start + done),
                      "the file is cut off: remove it and run the command again.");
    done += static_cast<uint64_t>(got);
  }
  return result;
}

}  // namespace bert
