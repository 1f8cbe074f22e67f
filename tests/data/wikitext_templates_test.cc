// Templates by language. Expected prose is what a reader of the Wikipedia sees, by the documentation pages of its
// templates, without superscripts, lines between numbers of centuries, and conversions.
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/wikitext/wikitext.h"
#include "tests/testing.h"

namespace bert {
namespace {

/// The text that a template leaves in the middle of a sentence.
std::string left_by(std::string_view language, const std::string& markup) {
  static const WikiNamespaces namespaces;
  constexpr std::string_view kBefore = "Alpha beta gamma ", kAfter = " delta epsilon.";
  std::string prose =
      wikitext_to_prose(std::string(kBefore) + markup + std::string(kAfter), "Title", namespaces, language);
  if (prose == "Alpha beta gamma delta epsilon.\n") return {};
  REQUIRE(prose.size() > kBefore.size() + kAfter.size());
  return prose.substr(kBefore.size(), prose.size() - kBefore.size() - kAfter.size() - 1);
}

using Cases = std::vector<std::pair<std::string, std::string>>;

void check(std::string_view language, const Cases& cases) {
  for (const auto& [markup, want] : cases) {
    CAPTURE(language, markup);
    CHECK(left_by(language, markup) == want);
  }
}

void check_nothing(std::string_view language, const std::vector<std::string>& templates) {
  for (const std::string& markup : templates) {
    CAPTURE(language, markup);
    CHECK(left_by(language, markup).empty());
  }
}

TEST_CASE("the language of a dump decides its templates", "[unit][wikitext]") {
  check("fr", {{"{{s|XIX}}", "XIXe siècle"}, {"{{e}}", "e"}, {"{{citation|mot}}", "« mot »"}});
  check("ru", {{"{{s|43 году}}", "43 году"}});
  check("it", {{"{{S|biografie}}", ""}, {"{{cita|Rossi|p. 5}}", ""}, {"{{M|313|k|m}}", "313 km"}});
  check("en", {{"{{e|5}}", "×10^5"}, {"{{fact|a reason|date=May 2010}}", ""}});
  check("ca", {{"{{S|XIX}}", "segle XIX"}});
  // Where no language is known, all tables count.
  check("", {{"{{s|XIX}}", "XIXe siècle"}, {"{{siglo|XIX||s}}", "siglo XIX"}, {"{{M|5||km}}", "5 km"}});
}

TEST_CASE("numbers, units and temperatures by language", "[unit][wikitext]") {
  check("fr", {{"{{unité|10000|km|2}}", "10000 km²"},
               {"{{unité|5|m||s|-1}}", "5 m⋅s⁻¹"},
               {"{{tmp|-26|°C}}", "−26 °C"},
               {"{{nombre|71|sièges}}", "71 sièges"},
               {"{{euro|77}}", "77 €"}});
  check("es", {{"{{unidad|10000|km|2}}", "10000 km²"}, {"45{{esd}}km", "45 km"}, {"{{esd|10 km}}", "10 km"}});
  check("it", {{"{{M|100||m}}", "100 m"}, {"{{M|5|u=km}}", "5 km"}, {"{{formatnum:10000}}", "10000"}});
  check("pt", {{"{{fmtn|10000|km}}", "10000 km"}, {"{{R$|10}}", "R$ 10"}});
  check("ca", {{"{{unitats|10000|km|2}}", "10000 km²"}});
  check("ru", {{"{{num|10000|км}}", "10000 км"}, {"{{число|3644826}}", "3644826"}});
  check("de", {{"{{Höhe|1234|DE-NN}}", "1234 m"}, {"{{FormatNum|10000}}", "10000"}});
  check("ar", {{"{{عدد|10000|كم}}", "10000 كم"}});
}

TEST_CASE("convert writes thousands as the language does", "[unit][wikitext]") {
  check("en", {{"{{convert|10000|km|mi}}", "10,000 km"},
               {"{{convert|12345.5|m}}", "12,345.5 m"},
               {"{{convert|1500|-|2500|ft|m}}", "1,500–2,500 ft"},
               {"{{convert|-26|C|F}}", "−26 °C"},
               {"{{convert|10,000|km|mi}}", "10,000 km"},
               {"{{convert|999|km|mi}}", "999 km"}});
  check("nl", {{"{{convert|10000|km|mi}}", "10.000 km"}});
  check("es", {{"{{convert|10000|km|mi}}", "10 000 km"}, {"{{convert|1000|km|mi}}", "1000 km"}});
  check("ja", {{"{{convert|10000|km|mi}}", "10,000 km"}});
  check("tr", {{"{{çevir|10000|km|mi}}", "10.000 km"}});
  check("fr", {{"{{conversion|5|km|mi}}", "5 km"}});
}

TEST_CASE("dates by language", "[unit][wikitext]") {
  check("fr", {{"{{date de naissance-|17|octobre|1973}}", "17 octobre 1973"},
               {"{{date|1|1|1900|en sport}}", "1er janvier 1900"},
               {"{{date-|11 février 1929}}", "11 février 1929"},
               {"{{date|17 octobre 1973|en sport}}", "17 octobre 1973"},
               {"{{date|octobre|1973}}", "octobre 1973"},
               {"{{date||janvier|1900}}", "janvier 1900"}});
  check("es", {{"{{fecha|2005|3|17}}", "17 de marzo de 2005"}});
  check("pt", {{"{{dtlink|17|3|2005}}", "17 de março de 2005"}});
  check("ca", {{"{{data|1|4|2005}}", "1 d'abril de 2005"}});
  check("ro", {{"{{dată|2005|3|17}}", "17 martie 2005"}});
  check("de", {{"{{Datum|17|3|2005}}", "17. März 2005"}});
  check("en", {{"{{start date|2005|3|17}}", "March 17, 2005"}, {"{{as of|2010|5}}", "As of May 2010"}});
  check("hu", {{"{{dátum|2005|3|17}}", "2005. március 17."}});
  check("ja", {{"{{生年月日と年齢|1950|3|17}}", "1950年3月17日"}});
  check("ko", {{"{{출생일|1950|3|17}}", "1950년 3월 17일"}});
  check("vi", {{"{{ngày|17|3|2005}}", "17 tháng 3 năm 2005"}});
  check("ru",
        {{"{{дата|17|3|2005}}", "17 марта 2005"}, {"{{OldStyleDate|6 июня|1799|26 мая}}", "26 мая [6 июня] 1799"}});
  // Pushkin's birthday, Gorky's, and the first day of a year of the Gregorian calendar.
  check("ru", {{"{{СС3|26.05.1799}}", "26 мая [6 июня] 1799"},
               {"{{СС3|16|3|1868}}", "16 [28] марта 1868"},
               {"{{СС3|20.12.1899}}", "20 декабря 1899 [1 января 1900]"}});
}

TEST_CASE("centuries by language", "[unit][wikitext]") {
  check("fr", {{"{{s2|III|e|IX|e}}", "IIIe et IXe siècles"},
               {"{{sp|XVIII|e|au|XIX|e}}", "XVIIIe au XIXe siècle"},
               {"{{XXe siècle}}", "XXe siècle"},
               {"{{-s|V}}", "Ve siècle av. J.-C."},
               {"{{84e|congrès}}", "84e congrès"}});
  check("es", {{"{{siglo|XIX||s}}", "siglo XIX"}, {"{{siglo|XIX}}", "XIX"}, {"{{siglo|V|a|s}}", "siglo V a. C."}});
  check("pt", {{"{{séc|XIX}}", "século XIX"}});
  check("ca", {{"{{segle|XIX}}", "segle XIX"}});
}

TEST_CASE("words that a template encloses stay", "[unit][wikitext]") {
  check("it", {{"{{citazione necessaria|un fatto|data=maggio 2010}}", "un fatto"},
               {"{{senza fonte|un fatto|maggio 2010}}", "un fatto"},
               {"{{chiarire|un fatto}}", "un fatto"},
               {"{{nobr|10 km}}", "10 km"}});
  check("ja", {{"{{要出典範囲|多くの本を書いた|date=2010年1月}}", "多くの本を書いた"},
               {"{{Lang|en|word}}", "word"},
               {"{{読み仮名|東京|とうきょう}}", "東京（とうきょう）"},
               {"{{仮リンク|言葉|en|Word}}", "言葉"}});
  check("es", {{"{{cita requerida|destruida por el fuego}}", "destruida por el fuego"}, {"{{versalita|XIX}}", "XIX"}});
  check("fr", {{"{{refnec|ce fait|date=mai 2010}}", "ce fait"},
               {"{{pas clair|ce texte}}", "ce texte"},
               {"{{Qui ?|une personne}}", "une personne"}});
  check("ru", {{"{{нет АИ 2|этот факт|3|01|2018}}", "этот факт"}, {"{{нп5|Слово||en|Word}}", "Слово"}});
  check("pl", {{"{{Fakt|to zdanie|data=2017-11}}", "to zdanie"}});
  check("nl", {{"{{Bron?|deze bewering|2019|04|15}}", "deze bewering"}});
  check("sv", {{"{{källa behövs|detta påstående|datum=maj 2010}}", "detta påstående"}});
  check("pt", {{"{{carece de fontes2|este facto|data=maio de 2010}}", "este facto"}});
  check("ko", {{"{{llang|de|Berlin}}", "Berlin"}, {"{{출처|날짜=2010-3-3|이 문장}}", "이 문장"}});
  check("ar", {{"{{إنج|Cairo}}", "Cairo"}, {"{{لغة-أل|Berlin}}", "Berlin"}});
  check("fi", {{"{{k-de|Haus}}", "Haus"}});
  check("zh", {{"{{link-en|詞|word}}", "詞"}, {"{{tsl|en|Word|詞}}", "詞"}});
}

TEST_CASE("citations leave nothing", "[unit][wikitext]") {
  check_nothing("en", {"{{cite web|url=http://x.org|title=T}}", "{{sfn|Smith|2001|p=5}}", "{{r|smith}}", "{{rp|12}}"});
  check_nothing("fr", {"{{lien web|titre=T}}", "{{ouvrage|titre=T}}", "{{sfn|Dupont|2001}}", "{{harvsp|Dupont|2001}}"});
  check_nothing("es", {"{{cita libro|título=T}}", "{{cita web|url=http://x.org}}", "{{harvnp|Pérez|2001}}"});
  check_nothing("it", {"{{cita|Rossi|p. 5}}", "{{cita libro|titolo=T}}", "{{cita web|url=http://x.org}}"});
  check_nothing("pt", {"{{citar web|url=http://x.org}}", "{{citar livro|título=T}}", "{{harvref|Silva|2001}}"});
  check_nothing("ca", {"{{ref-llibre|títol=T}}", "{{ref-web|url=http://x.org}}"});
  check_nothing("ro", {"{{citat web|url=http://x.org}}", "{{citat carte|titlu=T}}"});
  check_nothing("de", {"{{Literatur|Titel=T}}", "{{Internetquelle|url=http://x.org}}"});
  check_nothing("ru", {"{{книга|заглавие=T}}", "{{sfn|Поспелов|2002|с=66}}"});
  check_nothing("pl", {"{{cytuj książkę|tytuł=T}}", "{{odn|Nowak|2001}}", "{{r|fam}}"});
  check_nothing("ar", {"{{استشهاد بويب|مسار=http://x.org}}", "{{مرجع ويب|url=http://x.org}}"});
  check_nothing("ko", {"{{웹 인용|url=http://x.org}}", "{{서적 인용|제목=T}}"});
  check_nothing("tr", {"{{Web kaynağı|url=http://x.org}}", "{{kitap kaynağı|başlık=T}}"});
  check_nothing("fi", {"{{kirjaviite|Tekijä=X}}", "{{verkkoviite|osoite=http://x.org}}"});
}

TEST_CASE("notes leave nothing", "[unit][wikitext]") {
  for (const char* language : {"en", "fr", "es", "it", "ru", "ja", "zh", "de", "ar"})
    check_nothing(language, {"{{efn|A note.}}", "{{refn|A note}}"});
  check_nothing("fr", {"{{note|Une note ici}}"});
  check_nothing("es", {"{{nota al pie|texto}}"});
  check_nothing("it", {"{{nota|una nota}}"});
  check_nothing("pt", {"{{nota de rodapé|texto}}"});
  check_nothing("ru", {"{{прим|текст}}", "{{примечание|Текст}}"});
  check_nothing("pl", {"{{uwaga|Uwaga tutaj}}"});
  check_nothing("sv", {"{{fotnot|text}}"});
  check_nothing("ar", {"{{ملاحظة|نص}}", "{{هامش|نص}}"});
  check_nothing("fa", {"{{یاد|یادداشت}}"});
  check_nothing("he", {"{{הערה|טקסט}}", "{{ביאור|טקסט}}"});
  check_nothing("zh", {"{{noteTag|註釋}}"});
  check_nothing("ko", {"{{주|각주 내용}}"});
}

TEST_CASE("marks of maintenance leave nothing", "[unit][wikitext]") {
  check_nothing("en", {"{{citation needed|date=May 2010}}", "{{cn|May 2010}}", "{{who|date=June 2011}}",
                       "{{clarify|reason=of what|date=May 2010}}", "{{better source needed|date=May 2010}}"});
  check_nothing("fr", {"{{refnec}}", "{{quand|date=mai 2010}}", "{{référence nécessaire|date=mai 2010}}"});
  check_nothing("es", {"{{cita requerida}}", "{{cita requerida|mayo de 2010}}", "{{actualizar|2009}}"});
  check_nothing("it", {"{{senza fonte}}", "{{quando|maggio 2010}}"});
  check_nothing("pt", {"{{carece de fontes|data=maio de 2010}}", "{{carece de fontes|soc|br}}"});
  check_nothing("ru", {"{{нет АИ|3|01|2018}}", "{{кто?|12|05|2010}}"});
  check_nothing("nl", {"{{Bron?||2019|04|15}}"});
  check_nothing("fi", {"{{lähde}}", "{{lähde|15. kesäkuuta 2010}}"});
  check_nothing("ja", {"{{要出典|date=2010年1月}}", "{{いつ|date=2010年1月}}"});
  check_nothing("ro", {"{{necesită citare|mai 2010}}"});
  check_nothing("ar", {"{{بحاجة لمصدر|تاريخ=مايو 2010}}", "{{بحاجة لمصدر|مايو 2010}}"});
  check_nothing("vi", {"{{cần dẫn nguồn|tháng 5 năm 2010}}"});
}

TEST_CASE("the pronunciation of a word leaves nothing", "[unit][wikitext]") {
  for (const char* language : {"en", "fr", "es", "it", "ru", "ja", "zh", "de", "pl", "pt", "nl", "sv"})
    check_nothing(language, {"{{IPA|bɛʁˈliːn}}", "{{audio|De-Berlin.ogg|Berlin}}", "({{IPA|x}})"});
  check_nothing("en", {"{{IPAc-en|b|ɜr|l|ɪ|n}}", "{{respell|bur|LIN}}", "{{IPA|en|ˈlʌndən}}"});
  check_nothing("fr", {"{{API|bɛʁlɛ̃}}", "{{MSAPI|b|ɛ|ʁ}}", "{{prononciation|De-Berlin.ogg}}"});
  check_nothing("es", {"{{AFI|beɾˈlin}}"});
  check_nothing("ru", {"{{МФА|bɛʁˈliːn}}"});
  check_nothing("de", {"{{Lautschrift|bɛʁˈliːn}}"});
  check_nothing("ar", {"{{ألفد|bɛʁ}}"});
  check_nothing("fi", {"{{lausunta|De-Berlin.ogg}}"});
  check("en", {{"{{IPA|/ʔa, ʔi, ʔu/}}", "/ʔa, ʔi, ʔu/"}});  // sounds, of which the sentence speaks
}

TEST_CASE("an unknown template in a sentence keeps a number or words", "[unit][wikitext]") {
  for (const char* language : {"ar", "ro", "pt", "ca", "cy", ""})
    check(language, {{"{{xyzzy|some words}}", "some words"},
                     {"{{xyzzy|12345}}", "12345"},
                     {"{{xyzzy|-12|km|2}}", "−12 km²"},
                     {"{{xyzzy|50 %}}", "50 %"},
                     {"{{xyzzy|de|Haus}}", "Haus"},
                     {"{{xyzzy|x.ogg}}", ""},
                     {"{{xyzzy|de}}", ""},
                     {"{{xyzzy|http://x.org}}", ""},
                     {"{{xyzzy||2010}}", ""},
                     {"{{xyzzy|name=value}}", ""},
                     {"{{xyzzy|It is the day on which all of them met.}}", ""}});
  check("it", {{"{{xyzzy|17|3|2005}}", "17 marzo 2005"}, {"{{xyzzy|17|marzo|2005}}", "17 marzo 2005"}});
  const auto prose = [](std::string_view text) { return wikitext_to_prose(text, "", WikiNamespaces(), "pt"); };
  // Behind a word or at an end stands a mark.
  CHECK(prose("Alpha beta{{xyzzy|gamma delta}} epsilon.{{xyzzy|zeta}} Eta theta. {{xyzzy|iota}}\n") ==
        "Alpha beta epsilon. Eta theta.\n");
  CHECK(prose("{{xyzzy|gamma}} Alpha beta gamma delta.") == "Alpha beta gamma delta.\n");
}

}  // namespace
}  // namespace bert
