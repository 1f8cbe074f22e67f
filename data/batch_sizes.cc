#include "data/batch_sizes.h"

#include <algorithm>
#include <cmath>

namespace bert {

int64_t BatchSizes::at(int64_t steps, int64_t sequences) const {
  int64_t size = first_;
  for (const BatchGrowth& next : growth_) {
    if (steps >= next.after_steps && static_cast<double>(sequences) >= next.after_sequences) size = next.size;
  }
  return size;
}

std::vector<BatchSizes::Part> BatchSizes::parts(int64_t steps) const {
  std::vector<Part> parts;
  Part part{.size = first_, .steps = 0};
  int64_t done = 0;
  double sequences = 0;
  const auto end_part = [&](double end) {
    part.steps = static_cast<int64_t>(std::clamp(end, static_cast<double>(done), static_cast<double>(steps))) - done;
    done += part.steps;
    sequences += part.sequences();
    if (part.steps > 0) parts.push_back(part);
  };
  for (const BatchGrowth& next : growth_) {
    const double left = std::ceil((next.after_sequences - sequences) / static_cast<double>(part.size));
    end_part(next.after_steps > 0 ? static_cast<double>(next.after_steps) : static_cast<double>(done) + left);
    part.size = next.size;
  }
  end_part(static_cast<double>(steps));
  return parts;
}

double BatchSizes::sequences(int64_t steps) const {
  double sum = 0;
  for (const Part& part : parts(steps)) sum += part.sequences();
  return sum;
}

int64_t BatchSizes::steps_of(double sequences, int64_t most) const {
  int64_t steps = 0;
  for (const Part& part : parts(most)) {
    if (part.sequences() >= sequences) {
      return std::max<int64_t>(1, steps + static_cast<int64_t>(std::ceil(sequences / static_cast<double>(part.size))));
    }
    steps += part.steps;
    sequences -= part.sequences();
  }
  return most;
}

}  // namespace bert
