#include <string>
#include <string_view>
#include <unordered_map>

#include "data/wikitext/prose_lines.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

/// In lower case. Source: the guides to layout of the Wikipedias.
constexpr std::string_view kWorks =
    // English
    "notes|footnotes|publications|selected publications|selected bibliography|discography|filmography|works|"
    "selected works|"
    // German, French
    "anmerkungen|fußnoten|werke|schriften|diskografie|filmografie|œuvres|publications|filmographie|discographie|"
    // Spanish, Portuguese, Italian
    "notas|obras|note|opere|"
    // Dutch, Swedish, Danish, Norwegian, Polish, Czech, Turkish
    "noter|uwagi|poznámky|notlar|"
    // Russian, Ukrainian, Bulgarian
    "примечания|сочинения|примітки|бележки|"
    // Chinese, Japanese, Korean
    "注释|註釋|注釋|註解|脚注|腳註|著作|作品|注|注記|각주|주해|"
    // Arabic, Hindi, Vietnamese
    "هوامش|टिप्पणी|chú thích|";
constexpr std::string_view kSources =
    // English
    "references|external links|further reading|bibliography|see also|sources|works cited|citations|"
    "notes and references|references and notes|literature|links|"
    // German
    "einzelnachweise|weblinks|literatur|siehe auch|quellen|belege|einzelnachweise und anmerkungen|"
    // French
    "références|liens externes|bibliographie|voir aussi|notes et références|articles connexes|annexes|lien externe|"
    // Spanish, Portuguese, Italian, Catalan, Romanian
    "referencias|enlaces externos|bibliografía|véase también|fuentes|referências|ligações externas|bibliografia|"
    "ver também|notas e referências|notas y referencias|collegamenti esterni|altri progetti|voci correlate|referències|"
    "enllaços externs|vegeu també|referințe|legături externe|vezi și|bibliografie|"
    // Dutch, Swedish, Danish, Norwegian, Finnish
    "referenties|externe links|externe link|literatuur|zie ook|bronnen|bronnen, noten en/of referenties|referenser|"
    "externa länkar|se även|källor|litteratur|referencer|eksterne henvisninger|se også|kilder|referanser|"
    "eksterne lenker|lähteet|aiheesta muualla|katso myös|viitteet|kirjallisuutta|"
    // Polish, Czech, Slovak, Hungarian, Turkish
    "przypisy|linki zewnętrzne|zobacz też|reference|externí odkazy|související články|literatura|referencie|"
    "externé odkazy|jegyzetek|források|további információk|kapcsolódó szócikkek|kaynakça|dış bağlantılar|ayrıca "
    "bakınız|"
    // Russian, Ukrainian, Bulgarian, Serbian, Greek
    "ссылки|литература|см. также|источники|посилання|література|див. також|джерела|източници|външни препратки|"
    "вижте също|референце|спољашње везе|види још|παραπομπές|εξωτερικοί σύνδεσμοι|βιβλιογραφία|δείτε επίσης|πηγές|"
    // Chinese, Japanese, Korean
    "参考文献|參考文獻|参考资料|參考資料|外部链接|外部連結|外部鏈接|参见|參見|参看|參看|来源|來源|延伸阅读|延伸閱讀|"
    "相关条目|"
    "相關條目|出典|関連項目|外部リンク|関連文献|脚注・出典|参照|참고 문헌|외부 링크|같이 보기|참고문헌|"
    // Arabic, Persian, Hebrew, Urdu
    "مراجع|المراجع|مصادر|المصادر|وصلات خارجية|روابط خارجية|انظر أيضا|انظر أيضًا|اقرأ أيضا|منابع|پانویس|پیوند به "
    "بیرون|"
    "جستارهای وابسته|הערות שוליים|קישורים חיצוניים|ראו גם|לקריאה נוספת|حوالہ جات|بیرونی روابط|مزید دیکھیے|"
    // Hindi, Bengali, Tamil, Thai, Vietnamese, Indonesian
    "सन्दर्भ|संदर्भ|बाहरी कड़ियाँ|इन्हें भी देखें|তথ্যসূত্র|বহিঃসংযোগ|আরও দেখুন|மேற்கோள்கள்|வெளி இணைப்புகள்|"
    "อ้างอิง|แหล่งข้อมูลอื่น|ดูเพิ่ม|tham khảo|liên kết ngoài|xem thêm|referensi|pranala luar|lihat pula|"
    "daftar pustaka|";

}  // namespace

SectionKind section_kind(std::string_view heading) {
  static const std::unordered_map<std::string_view, SectionKind> kinds = [] {
    std::unordered_map<std::string_view, SectionKind> made;
    for_each_entry(kWorks, [&](std::string_view name) { made.emplace(name, SectionKind::kWorks); });
    for_each_entry(kSources, [&](std::string_view name) { made.emplace(name, SectionKind::kSources); });
    return made;
  }();
  const auto found = kinds.find(folded_name(heading));
  return found == kinds.end() ? SectionKind::kText : found->second;
}

}  // namespace bert
