#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "data/formats/shard.h"
#include "data/io/error.h"

namespace bert {

PretrainingShards::PretrainingShards(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    for (const std::string& file : shard_files(path)) {
      shards_.push_back(std::make_unique<Shard>(file));
      const Shard& last = *shards_.back();
      const ShardManifest& manifest = last.manifest();
      vocab_size_ = std::max(vocab_size_, manifest.vocab_size);
      if (known_ == nullptr || (vocabulary_checksum().empty() && !manifest.vocabulary_checksum.empty())) known_ = &last;
      if (!manifest.vocabulary_checksum.empty() && (manifest.vocab_size != known_->manifest().vocab_size ||
                                                    manifest.vocabulary_checksum != vocabulary_checksum())) {
        throw DataError(fmt::format(
            "{}: made with a vocabulary of {} entries, checksum {}; {} has {}, checksum {}. Make both with one "
            "vocabulary.",
            last.path(), manifest.vocab_size, manifest.vocabulary_checksum, known_->path(),
            known_->manifest().vocab_size, vocabulary_checksum()));
      }
      first_rows_.push_back(first_rows_.back() + last.size());
    }
  }
  if (size() == 0)
    throw DataError(fmt::format("{}: no examples to read", paths.empty() ? "no shards were named" : paths.front()));
}

std::pair<const Shard*, int64_t> PretrainingShards::locate(int64_t index) const {
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), index);
  if (after == first_rows_.begin() || after == first_rows_.end()) {
    throw std::out_of_range(fmt::format("example {} of {}", index, size()));
  }
  const auto shard = static_cast<size_t>(after - first_rows_.begin()) - 1;
  return {shards_[shard].get(), index - first_rows_[shard]};
}

ShardRow PretrainingShards::row(int64_t index) const {
  const auto [shard, row] = locate(index);
  return shard->row(row);
}

int64_t PretrainingShards::bytes_of_row(int64_t index) const {
  const auto [shard, row] = locate(index);
  return shard->bytes_of_row(row);
}

PretrainingExample PretrainingShards::example(int64_t index) const {
  PretrainingExample example;
  row(index).copy_to(example);
  return example;
}

void PretrainingShards::assume_vocabulary(int64_t vocab_size) {
  for (const auto& shard : shards_) {
    if (shard->manifest().max_id >= vocab_size) {
      throw DataError(fmt::format("{}: has id {}, and the vocabulary has {} entries", shard->path(),
                                  shard->manifest().max_id, vocab_size));
    }
  }
  vocab_size_ = vocab_size;
}

int64_t PretrainingShards::longest_row() const {
  int64_t longest = 0;
  for (const auto& shard : shards_) longest = std::max(longest, shard->manifest().longest_row);
  return longest;
}

bool PretrainingShards::any_pairs() const {
  return std::ranges::any_of(shards_, [](const auto& shard) { return has_pairs(objective_of(shard->manifest())); });
}

double PretrainingShards::mean_length() const {
  int64_t tokens = 0;
  for (const auto& shard : shards_) tokens += shard->manifest().tokens;
  return static_cast<double>(tokens) / static_cast<double>(size());
}

}  // namespace bert
