// A report as one page of HTML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace bert {

/// The page that draws `data`, the value of report_data(). It has nothing from elsewhere: style, script and data are
/// in it. Equal data give equal bytes.
std::string report_page(const nlohmann::json& data);

/// The files of app/report/view/page/ as one page, with kReportDataMark in the place of the data. CMake makes its source.
extern const std::string_view kReportPage;
inline constexpr std::string_view kReportDataMark = "BERT_REPORT_DATA";

}  // namespace bert
