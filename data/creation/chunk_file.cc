#include "data/creation/chunk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

constexpr char kMagic[8] = {'B', 'E', 'R', 'T', 'C', 'H', 'K', '2'};

struct ChunkHeader {
  char magic[8];
  uint64_t id_bytes, targets;
  CorpusStatistics statistics;
  uint64_t checksum;  // XXH3-64 of the header before
};
static_assert(sizeof(ChunkHeader) == 32 + sizeof(CorpusStatistics));

struct SectionEntry {
  uint64_t start, bytes, documents, sentences, tokens;
  uint64_t section_checksum;  // XXH3-64 of the section
  uint64_t checksum;          // XXH3-64 of the entry before
};

template <class Value>
void append(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Id>
void append_ids(std::string& bytes, std::span<const int32_t> ids) {
  const size_t start = bytes.size();
  bytes.resize(start + ids.size() * sizeof(Id));
  for (size_t i = 0; i < ids.size(); ++i) {
    const Id id = static_cast<Id>(ids[i]);
    std::memcpy(bytes.data() + start + i * sizeof(Id), &id, sizeof id);
  }
}

bool is_wide(int64_t vocab_size) { return vocab_size > TokenizedDocuments::kNarrowVocabulary; }

/// Of a header or an entry, whose last member is its checksum.
template <class Record>
uint64_t checksum_of(const Record& record) {
  return XXH3_64bits(&record, offsetof(Record, checksum));
}

DataError damaged(const std::string& path, uint64_t place) {
  return {path, static_cast<int64_t>(place), "the checksum does not match: remove the file and run the command again."};
}

}  // namespace

void SectionFigures::add(const SectionFigures& more) {
  documents += more.documents;
  sentences += more.sentences;
  tokens += more.tokens;
}

EncodedDocument encode_document(const std::string& text, const Tokenizer& tokenizer, const ReaderOptions& reader,
                                CorpusStatistics& statistics) {
  const bool wide = is_wide(tokenizer.vocabulary().size());
  const int32_t unk_id = tokenizer.vocabulary().unk_id();
  EncodedDocument document;
  append(document.bytes, uint32_t{0});  // reserves the place
  for_each_sentence(text, tokenizer, reader, [&](std::span<const int32_t> ids) {
    ++document.sentences;
    document.tokens += ids.size();
    statistics.unknown_tokens += std::ranges::count(ids, unk_id);
    append(document.bytes, static_cast<uint32_t>(ids.size()));
    wide ? append_ids<uint32_t>(document.bytes, ids) : append_ids<uint16_t>(document.bytes, ids);
  });
  const auto sentences = static_cast<uint32_t>(document.sentences);
  std::memcpy(document.bytes.data(), &sentences, sizeof sentences);
  statistics.sentences += static_cast<int64_t>(document.sentences);
  statistics.tokens += static_cast<int64_t>(document.tokens);
  ++(sentences > 0 ? statistics.documents : statistics.empty_documents);
  document.bytes.resize(sentences > 0 ? document.bytes.size() : 0);
  document.bytes.shrink_to_fit();
  return document;
}

void write_chunk(const std::string& path, const std::vector<EncodedDocument>& documents,
                 const std::vector<uint32_t>& targets, size_t target_count, int64_t vocab_size,
                 const CorpusStatistics& statistics) {
  std::vector<std::vector<uint32_t>> by_target(target_count);
  for (uint32_t i = 0; i < targets.size(); ++i) by_target[targets[i]].push_back(i);
  ChunkHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.id_bytes = is_wide(vocab_size) ? 4 : 2;
  header.targets = target_count;
  header.statistics = statistics;
  header.checksum = checksum_of(header);
  std::vector<SectionEntry> table(target_count);
  AtomicFile file(path);
  file.write(&header, sizeof header);
  file.write(table.data(), target_count * sizeof(SectionEntry));  // reserves the place
  std::string section;
  for (size_t target = 0; target < target_count; ++target) {
    section.clear();
    SectionEntry& entry = table[target];
    for (const uint32_t i : by_target[target]) {
      const EncodedDocument& document = documents[i];
      entry.documents += document.sentences > 0;
      entry.sentences += document.sentences;
      entry.tokens += document.tokens;
      section += document.bytes;
    }
    entry.start = static_cast<uint64_t>(file.size());
    entry.bytes = section.size();
    entry.section_checksum = XXH3_64bits(section.data(), section.size());
    entry.checksum = checksum_of(entry);
    file.write(section);
  }
  file.write_at(sizeof header, table.data(), target_count * sizeof(SectionEntry));
  file.commit();
}

ChunkFile::ChunkFile(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_) {
    if (errno == ENOENT) throw InputMissing(path + ": no such file");
    throw_io_error(path, "open", errno);
  }
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) throw_io_error(path, "read", errno);
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  ChunkHeader header{};
  std::memcpy(&header, read_bytes(0, sizeof header).data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.checksum != checksum_of(header) ||
      header.targets > file_bytes_ / sizeof(SectionEntry))
    throw damaged(path, 0);
  targets_ = header.targets;
  id_bytes_ = header.id_bytes;
  statistics_ = header.statistics;
}

void ChunkFile::add_figures(std::vector<SectionFigures>& sums) const {
  const std::string table = read_bytes(sizeof(ChunkHeader), targets_ * sizeof(SectionEntry));
  for (size_t target = 0; target < targets_; ++target) {
    SectionEntry entry{};
    std::memcpy(&entry, table.data() + target * sizeof entry, sizeof entry);
    if (entry.checksum != checksum_of(entry)) throw damaged(path_, sizeof(ChunkHeader) + target * sizeof entry);
    sums.at(target).add({.documents = entry.documents, .sentences = entry.sentences, .tokens = entry.tokens});
  }
}

void ChunkFile::read(size_t target, TokenizedDocuments& documents) const {
  SectionEntry entry{};
  const uint64_t place = sizeof(ChunkHeader) + target * sizeof entry;
  std::memcpy(&entry, read_bytes(place, sizeof entry).data(), sizeof entry);
  if (entry.checksum != checksum_of(entry)) throw damaged(path_, place);
  const std::string section = read_bytes(entry.start, entry.bytes);
  if (entry.section_checksum != XXH3_64bits(section.data(), section.size())) throw damaged(path_, entry.start);
  std::vector<int32_t> ids;
  const char* at = section.data();
  const auto take = [&](void* to, size_t bytes) {
    std::memcpy(to, at, bytes);
    at += bytes;
  };
  for (uint64_t document = 0; document < entry.documents; ++document) {
    uint32_t sentences = 0;
    take(&sentences, sizeof sentences);
    for (uint32_t sentence = 0; sentence < sentences; ++sentence) {
      uint32_t length = 0;
      take(&length, sizeof length);
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
  if (start > file_bytes_ || bytes > file_bytes_ - start) throw damaged(path_, std::min(start, file_bytes_));
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
