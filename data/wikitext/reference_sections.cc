#include <string>
#include <unordered_set>

#include "data/wikitext/prose_lines.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

/// In lower case. Source: the guides to layout of the Wikipedias.
constexpr std::string_view kReferenceSections =
    // English
    "references|external links|further reading|bibliography|see also|notes|sources|works cited|citations|footnotes|"
    "notes and references|references and notes|literature|publications|selected publications|selected bibliography|"
    "discography|filmography|works|selected works|links|"
    // German
    "einzelnachweise|weblinks|literatur|siehe auch|anmerkungen|quellen|werke|schriften|fußnoten|belege|"
    "einzelnachweise und anmerkungen|diskografie|filmografie|"
    // French
    "références|liens externes|bibliographie|voir aussi|notes et références|articles connexes|annexes|lien "
    "externe|œuvres|"
    "publications|filmographie|discographie|"
    // Spanish, Portuguese, Italian, Catalan, Romanian
    "referencias|enlaces externos|bibliografía|véase también|notas|fuentes|referências|ligações externas|bibliografia|"
    "ver também|notas e referências|note|collegamenti esterni|altri progetti|voci correlate|referències|enllaços "
    "externs|"
    "vegeu també|referințe|legături externe|vezi și|bibliografie|"
    // Dutch, Swedish, Danish, Norwegian, Finnish
    "referenties|externe links|externe link|literatuur|zie ook|bronnen|bronnen, noten en/of referenties|referenser|"
    "externa länkar|se även|källor|noter|litteratur|referencer|eksterne henvisninger|se også|kilder|referanser|"
    "eksterne lenker|lähteet|aiheesta muualla|katso myös|viitteet|kirjallisuutta|"
    // Polish, Czech, Slovak, Hungarian, Turkish
    "przypisy|linki zewnętrzne|zobacz też|uwagi|reference|externí odkazy|související "
    "články|literatura|poznámky|referencie|"
    "externé odkazy|jegyzetek|források|további információk|kapcsolódó szócikkek|kaynakça|dış bağlantılar|ayrıca "
    "bakınız|"
    "notlar|"
    // Russian, Ukrainian, Bulgarian, Serbian, Greek
    "примечания|ссылки|литература|см. также|источники|примітки|посилання|література|див. також|джерела|източници|"
    "външни препратки|вижте също|бележки|референце|спољашње везе|види још|παραπομπές|εξωτερικοί σύνδεσμοι|βιβλιογραφία|"
    "δείτε επίσης|πηγές|"
    // Chinese, Japanese, Korean
    "参考文献|參考文獻|参考资料|參考資料|外部链接|外部連結|外部鏈接|参见|參見|参看|參看|注释|註釋|注釋|註解|脚注|腳註|"
    "来源|來源|延伸阅读|延伸閱讀|相关条目|相關條目|出典|注|注記|関連項目|外部リンク|関連文献|脚注・出典|각주|참고 문헌|"
    "외부 링크|같이 보기|주해|참고문헌|"
    // Arabic, Persian, Hebrew, Urdu
    "مراجع|المراجع|مصادر|المصادر|وصلات خارجية|روابط خارجية|انظر أيضا|انظر أيضًا|اقرأ أيضا|هوامش|منابع|پانویس|پیوند به "
    "بیرون|"
    "جستارهای وابسته|הערות שוליים|קישורים חיצוניים|ראו גם|לקריאה נוספת|حوالہ جات|بیرونی روابط|مزید دیکھیے|"
    // Hindi, Bengali, Tamil, Thai, Vietnamese, Indonesian
    "सन्दर्भ|संदर्भ|बाहरी कड़ियाँ|इन्हें भी देखें|टिप्पणी|তথ্যসূত্র|বহিঃসংযোগ|আরও দেখুন|மேற்கோள்கள்|வெளி இணைப்புகள்|"
    "อ้างอิง|แหล่งข้อมูลอื่น|ดูเพิ่ม|tham khảo|liên kết ngoài|xem thêm|chú thích|referensi|pranala luar|lihat pula|"
    "daftar pustaka|";

}  // namespace

bool is_reference_section(std::string_view heading) {
  static const std::unordered_set<std::string_view> sections = [] {
    std::unordered_set<std::string_view> made;
    for_each_entry(kReferenceSections, [&](std::string_view name) { made.insert(name); });
    return made;
  }();
  return sections.contains(folded_name(heading));
}

}  // namespace bert
