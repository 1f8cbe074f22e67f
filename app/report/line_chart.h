// Line charts as SVG.
#pragma once

#include <string>
#include <vector>

namespace bert {

struct ChartLine {
  std::string label;
  std::vector<double> y;  // at x = 1, 2, 3, ...; NaN interrupts the line
};

struct LineChart {
  std::string title, x_label, y_label;
  std::vector<ChartLine> lines;
};

/// An SVG document of 720 x 420 pixels, with ticks at round numbers and a legend. Equal charts give equal bytes. Throws
/// std::invalid_argument if no value is finite.
[[nodiscard]] std::string to_svg(const LineChart& chart);

}  // namespace bert
