// Examples that a child process parses out of a file, and their way to the parent (Note [Bounded child]).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/formats/example_file.h"
#include "data/io/bounded_child.h"

namespace bert {

/// The child's side. First the facts, then the examples.
class ExampleSender {
 public:
  explicit ExampleSender(MessageSender& sender) : sender_(sender) {}
  /// `size` is the number of examples that follow, -1 if it is unknown.
  void facts(const ExampleFileInfo& info, int64_t size);
  /// `share` of the file was read with this example.
  void example(const PretrainingExample& example, double share);

 private:
  MessageSender& sender_;
};

/// Reads what a child finds in a file. Every example is checked here.
class ChildReader : public ExampleReader {
 public:
  /// The work of the child. An exception's message becomes a DataError of the reader.
  using Parse = std::function<void(ExampleSender&)>;

  /// Runs `parse` in a child with limits that follow from the file's size: `seconds_per_megabyte` of processor time.
  /// Throws InputMissing, IoError, DataError.
  ChildReader(const std::string& path, int64_t seconds_per_megabyte, const Parse& parse);

  [[nodiscard]] const ExampleFileInfo& info() const override { return info_; }
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] double share() const override { return share_; }
  bool next(PretrainingExample& example) override;

 private:
  void numbers(std::vector<int32_t>& values);
  void read_facts();

  MessageReader child_;
  ExampleFileInfo info_;
  int64_t size_ = 0, read_ = 0;
  double share_ = 0;
  bool ended_ = false;
};

}  // namespace bert
