#include "app/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace bert {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 64, kRight = 18, kTop = 40, kBottom = 52;  // pixels
// Okabe and Ito's colours, which people with colour blindness can distinguish.
constexpr std::array<std::string_view, 7> kColours = {"#000000", "#e69f00", "#56b4e9", "#009e73",
                                                      "#d55e00", "#cc79a7", "#0072b2"};

struct Axis {
  double low, high, pixel_low, pixel_high;
  [[nodiscard]] double at(double value) const {
    return pixel_low + (value - low) / (high - low) * (pixel_high - pixel_low);
  }
  /// The distance of about five ticks: 1, 2 or 5 times a power of ten.
  [[nodiscard]] double tick() const {
    constexpr double kTicks = 5;
    const double raw = (high - low) / kTicks, power = std::pow(10.0, std::floor(std::log10(raw)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= raw) return factor * power;
    }
    return 10.0 * power;
  }
};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

std::string line_between(double x1, double y1, double x2, double y2) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n", x1, y1, x2,
                     y2);
}

std::string ticks(const Axis& x, const Axis& y) {
  std::string svg;
  for (double value = std::ceil(x.low / x.tick()) * x.tick(); value <= x.high; value += x.tick()) {
    svg += line_between(x.at(value), y.pixel_low, x.at(value), y.pixel_low + 4);
    svg += text_at(x.at(value), y.pixel_low + 18, "middle", fmt::format("{:g}", value));
  }
  for (double value = std::ceil(y.low / y.tick()) * y.tick(); value <= y.high; value += y.tick()) {
    svg += line_between(x.pixel_low, y.at(value), x.pixel_high, y.at(value));
    svg += text_at(x.pixel_low - 8, y.at(value) + 4, "end", fmt::format("{:g}", value));
  }
  return svg;
}

std::string path_of(const std::vector<double>& values, const Axis& x, const Axis& y) {
  std::string path;
  bool drawing = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) {
      path += fmt::format("{}{:.1f} {:.1f}", drawing ? "L" : "M", x.at(static_cast<double>(i + 1)), y.at(values[i]));
    }
    drawing = std::isfinite(values[i]);
  }
  return path;
}

}  // namespace

std::string to_svg(const LineChart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  size_t longest = 2;
  for (const ChartLine& line : chart.lines) {
    longest = std::max(longest, line.y.size());
    for (const double value : line.y) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (low > high) throw std::invalid_argument("a chart without a finite value: " + chart.title);
  if (low == high) high = low + 1;
  const Axis x{0, static_cast<double>(longest), kLeft, kWidth - kRight}, y{low, high, kHeight - kBottom, kTop};

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  svg += ticks(x, y);
  svg += text_at(kLeft, kTop - 18, "start", chart.title);
  svg += text_at((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", chart.x_label);
  svg += fmt::format("<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, escaped(chart.y_label));
  constexpr double kLabelWidth = 230, kLabelHeight = 18, kSample = 22;
  double label_y = kTop + kLabelHeight;
  for (size_t i = 0; i < chart.lines.size(); ++i, label_y += kLabelHeight) {
    const std::string_view colour = kColours[i % kColours.size()];
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                       path_of(chart.lines[i].y, x, y), colour);
    const double label_x = kWidth - kRight - kLabelWidth;
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}h{}\" stroke=\"{}\" stroke-width=\"3\"/>\n", label_x, label_y - 4,
                       kSample, colour);
    svg += text_at(label_x + kSample + 8, label_y, "start", chart.lines[i].label);
  }
  return svg + "</svg>\n";
}

}  // namespace bert
