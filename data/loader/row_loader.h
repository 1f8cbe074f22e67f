// Batches of rows of texts for embeddings, from one data set or several.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/loader/example_order.h"
#include "data/loader/global_step.h"
#include "data/loader/source_mix.h"
#include "data/loader/task_loader.h"
#include "data/tasks/task_data.h"

namespace bert {

/// A data set: `columns` neighbouring sequences are a row.
struct RowSet {
  std::shared_ptr<const TaskFeatures> features;
  int64_t columns = 2;
  [[nodiscard]] int64_t rows() const { return std::ssize(features->sequences) / columns; }
};

/// The largest number of columns.
int64_t most_columns(const std::vector<RowSet>& sets);

/// The rows of each step of one data set. Every row comes once in an epoch; steps do not end with epochs. Without
/// duplicates, a row that shares a text with an earlier row of the step waits for the next step with room for it; texts are
/// the same if their tokens are.
class RowPicker {
 public:
  RowPicker(const RowSet& set, uint64_t seed, int64_t rows_of_step, bool no_duplicates);
  /// The rows of the next step, as places in the set. Throws DataError if two epochs have too few different texts.
  std::vector<ExampleOrder::Place> next();

 private:
  /// Adds the row to the step that is being made, unless one of its texts is there.
  bool take(const ExampleOrder::Place& place);

  const int64_t rows_of_step_, columns_, rows_;
  ExampleOrder order_;
  int64_t read_ = 0;  // of order_
  std::vector<ExampleOrder::Place> waiting_, step_;
  std::vector<uint64_t> texts_;           // hash of each text of the set; empty: duplicates are allowed
  std::unordered_set<uint64_t> in_step_;  // hashes of the texts of step_
};

struct RowLoaderConfig {
  TaskLoaderConfig batches;  // its `choices` are not read; units are rows
  bool no_duplicates = true;
  bool round_robin = false;  // else sets are taken in proportion to their rows
};

/// A step takes its rows from one set. The steps are a pure function of the seed and the sets; ranks and micro-batches
/// share out the rows of a step as TaskLoader does. Row r of step s has the sequences (s * global_batch_size + r) *
/// most_columns() + column. SamplerState counts rows. restore() plans all steps before anew: a second for some million rows.
class RowLoader : public StepLoader {
 public:
  /// Throws c10::Error as TaskLoader.
  RowLoader(std::vector<RowSet> sets, const RowLoaderConfig& config);

  GlobalStep next_step() override;
  [[nodiscard]] SamplerState state() const override { return position_; }
  void restore(const SamplerState& state) override;

 private:
  void begin();
  /// The set of the next step, and its rows.
  std::pair<int64_t, std::vector<ExampleOrder::Place>> plan_step();
  [[nodiscard]] int64_t weight(const RowSet& set, int64_t row) const;

  std::vector<RowSet> sets_;
  RowLoaderConfig config_;
  SourceMix mix_;
  std::vector<RowPicker> pickers_;
  SamplerState position_;
  int64_t heaviest_ = 0;  // tokens of a row at most
};

}  // namespace bert
