#include "app/report/view/report_page.h"

#include "app/parse/bounded_json.h"

namespace bert {
namespace {

/// `data` as the text of a script element. Without "<", no value can end the element or begin a comment.
std::string script_text(const nlohmann::json& data) {
  std::string text;
  for (const char c : as_text(data)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string report_page(const nlohmann::json& data) {
  const size_t place = kReportPage.find(kReportDataMark);
  std::string page(kReportPage.substr(0, place));
  page += script_text(data);
  page += kReportPage.substr(place + kReportDataMark.size());
  return page;
}

}  // namespace bert
