// The templates that mean the same in every Wikipedia, how languages write numbers and dates, and the search.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/io/text_parts.h"
#include "data/wikitext/templates.h"
#include "data/wikitext/text_pieces.h"

namespace bert {
namespace {

struct CommonRow {
  std::string_view names, pattern;  // as of TemplateRow
};

// clang-format off
/// Sources: the documentation pages of the templates in the English Wikipedia.
constexpr CommonRow kRows[] = {
    // Layout around words.
    {"nowrap;nobr;nobreak;no wrap;nowrapped;nowr;nbr;awrap;resize text;text;plain text;font;rtl;ltr;bdi;nowiki", "{1}"},
    {"small;smaller;big;bigger;large;larger;em;strong;bold;nobold;noitalic;normal;italic;not italic;b;i;petit", "{1}"},
    {"strikethrough;underline;overline;smallcaps;small caps;sc;sc1;sc2;allcaps;mono;code;kbd;keypress;tt;samp;var", "{1}"},
    {"center;centre;left;right;float left;block indent;noindent;midsize;mvar;math;bigmath;xt;!xt;mxt;tq;highlight", "{1}"},
    {"charname;vanchor;visible anchor;anchored;not a typo;proper name;as written;sic inline;dropcap;dropinitial", "{1}"},
    {"abbr;abbrv;abbrlink;abbreviation;tooltip;hover title;popup;no selflink;noredirect;plainlink", "{1}"},
    {"sup;super;superscript;sub;subscript;su;exp;chem;chem2;chemical formula", "{*}"},
    {"color;font color;fontcolor;colour;deutschland-lang;bg;sort;legend;legend2;legend inline", "{2}"},
    {"resize;font size;fontsize;size;style;span;fs", "{2,1}"},
    {"sic", "{1}[ {2}]"},
    {"key press;key", "{*+}"},
    {"unichar", "U+{1}[ {2}]"},
    {"linktext;link text", "{* }"},
    {"hlist;flatlist;flat list;comma separated list;cslist;enum;enumeration", "{*, }"},
    {"ubl;unbulleted list;plainlist;plain list;vunblist;ordered list;bulleted list;blist", "{*; }"},
    // Words that a mark of maintenance encloses. Several languages redirect the English names to their own.
    {"citation needed span;clarify span;disputed span;fact span;cns;vague span;which span;by whom span", "{1}"},
    {"* needed;cn;fact;clarify;clarification;dubious;vague;who;whom;by whom;according to whom", "{prose 1}"},
    {"when;where;which;what;why;how;how many;quantify;specify;unclear;disputed", "{prose 1}"},
    // Signs.
    {"';`;apostrophe;apos", "'"},
    {"'s", "'s"},
    {"(", "("},
    {")", ")"},
    {"...;ellipsis", "…"},
    {"minus", "−"},
    {"times", "×"},
    {"hyphen;nbhyph", "-"},
    {"·;•;bull;middot;dot", " · "},
    {"prime", "{1}′"},
    {"' \"", "' \""},
    {"\" '", "\" '"},
    {"ndash;en dash;endash", "–"},
    {"mdash;em dash;emdash;--", "—"},
    {"spaced ndash;snd;snds;spnd;spndash;dash;spaced en dash;sndash;sdash", " – "},
    {"spaced mdash;mdashb;spmd;spmdash", " — "},
    {"nbsp;nbs;spaces;thinsp;thin space;hair space;hairsp;zwsp;pad;space;en space;em space;figure space;nnbsp", " "},
    {"okina;hamza;ayin", "ʻ"},
    {"pound;gbp;pound sterling;£", "£{1}"},
    {"us$;usd;us dollar", "US${1}"},
    {"hk$", "HK${1}"},
    {"nt$", "NT${1}"},
    {"s$", "S${1}"},
    {"php;₱", "₱{1}"},
    {"krw;₩", "₩{1}"},
    {"a$;au$;aud", "A${1}"},
    {"c$;ca$;cad;can$", "C${1}"},
    {"nz$;nzd", "NZ${1}"},
    {"euro;eur;€", "€{1}"},
    {"¥;yen;jpy;cny;rmb", "¥{1}"},
    {"inr;indian rupee;indian rupees;inrconvert;₹", "₹{1}"},
    {"degree;deg;°", "{1}°"},
    {"sqrt;radic;√", "√{1}"},
    {"pi", "π"},
    {"eqm;rightleftharpoons", "⇌"},
    {"angbr;angle bracket;grapheme", "⟨{1}⟩"},
    // Words of other languages.
    {"lang;langx;lang2;rtl-lang;script;wikt-lang", "{texte,text,2}"},
    {"lang-*", "{1}"},
    {"transl;transliteration;translit;xlit;tlit;xlt", "{-1}"},
    {"zh", "{c,t,s,1}[, {p}]"},
    {"korean", "{hangul,1}"},
    {"unicode;polytonic;hebrew;arabic;ar;nastaliq;nq;he-nikud;sanskrit;iast;iast1;tamil;devanagari;coptic", "{1}"},
    {"pie;proto;cuneiform;grc;latin", "{1}"},
    {"nihongo;nihongo2", "{1}[ ({2}[, {3}])]"},
    {"nihongo3", "{1}[ ({2})]"},
    {"nihongo krt;nihongo foot;nihongo core", "{1}"},
    {"ruby;ruby-ja", "{1}[ ({2})]"},
    {"gloss;gls;literal translation;lit;literally", "“{1}”"},
    {"native phrase;native name;nativename", "{2}"},
    // Quotations.
    {"quote;blockquote;bquote;quotation;cquote;rquote;quote block;cite quote;centered pull quote;poemquote", "\n\n{text,quote,texte,quotetext,1}\n\n"},
    {"poem quote;verse translation;poem;quote frame;quote2;quotation2", "\n\n{text,quote,texte,quotetext,1}\n\n"},
    {"\"", "{1}"},
    // Links.
    {"ill;interlanguage link;ill2;red link;ill-wd;interlanguage link multi;illm", "{lt,display,words}"},
    {"link-*", "{3,1}"},
    {"w;wl;wikilink;pagelink;wikt", "{2,1}"},
    {"flag;flagcountry;flagu;flaglink;flagcountry2;flagathlete", "{name,1}"},
    {"section link;slink", "{1} § {2}"},
    {"§", "§ {1}"},
    // Dates and numbers.
    {"convert;cvt", "{convert}"},
    {"as of;asof", "{asof}"},
    {"frac;fraction;frac2;sfrac", "{fraction}"},
    {"date;start date;end date;birth date;death date;birth date and age;death date and age;start date and age", "{date}"},
    {"dts;date table sorting;release date;launch date;film date;birth-date;death-date;start-date;end-date", "{date}"},
    {"circa;approx", "c. {1}[–{2}]"},
    {"floruit;fl.", "fl. {1}"},
    {"formatnum;nts;ntsh;number;num;comma;digits;formatprice;format price;order of magnitude", "{number 1}"},
    {"gaps", "{*}"},
    {"currency", "{1}[ {2}]"},
    {"val;unit;units", "{number 1}[×10^{e}][ {u,ul,2}]"},
    {"e;esp;x10", "{exponent 1}"},
    {"pow", "{1}[^{2}]"},
    {"ordinal;ord", "{1}{2}"},
    {"percent;pct", "{1}%"},
    {"simplenuclide;simplenuclide2;nuclide;nuclide2;isotope", "{1}[-{2}]"},
    {"co2", "CO2"},
    {"h2o", "H2O"},
    {"railgauge;track gauge;rail gauge", "{1}"},
    {"height", "[{m} m][{ft} ft[ {in} in]]"},
    {"music", "{1:flat=♭|b=♭|sharp=♯|#=♯|natural=♮|n=♮,1}"},
    {"dash year", "{1}–{2}"},
    {"sortname", "{1} {2}"},
    // Ships. {0} is the name of the template.
    {"uss;hms;hmas;hmcs;hmnzs;ss;rms;mv;ms;usns;uscgc;sms;hmt;rfa;ins;jds;gts;hnlms;hdms;hswms;mt;tss", "{0} {1}"},
    {"ship", "{1} {2}"},
    {"sclass;sclass-;sclass2;sclass2-", "{1}-class {2}"},
    {"ship class", "{1}-class"},
    // Sounds.
    {"ipa;ipalink;ipa link;ipablink", "{sound}"},
    {"ipa*;respell*;audio*;pronunciation*;pron*;listen;enpr;usdict;h:*;ogg", ""},
    // Citations: these mark an entry of a list as a source. {{harvtxt}} stands in a sentence.
    {"harv*", "{harvard,=\xFD}"},
    {"cite*;citation;citation/*;vcite*;cita *;citar *;citat *;isbn*;issn;doi;oclc;arxiv;bibcode;pmid;jstor", "\xFD"},
    // Notes, marks of maintenance and what is no text.
    {"sfn*;snf;r;rp;ref;refn;ref-*;ref label;note;note label;notelist*;notetag;efn*;nb5;nb10;#tag:*;reflist*;inote", ""},
    {"citation style;better source;dead link*;dead;link rot;webarchive*;wayback;cbignore;full citation needed;failed verification", ""},
    {"verify*;unreliable*;update*;outdated*;needs *;page needed;pages needed;original research*;or;pov*;npov*;weasel*;peacock*", ""},
    {"* inline;huh;examples;contradict*;check;expand*;split*;merge*;cleanup*;primary source*;self-published*;synthesis*", ""},
    {"dn;disambig*;hatnote;main;main article*;see;see also;seealso;further*;about;for;other uses*;redirect*;distinguish*;details", ""},
    {"flagicon*;flag icon*;flagdeco;*icon;icon *;anchor*;coord*;commons*;portal*;infobox*;navbox*;clear*;toc*;-;br", ""},
    {"ancla;ancora;âncora;àncora;anker;ankare;ankkuri;kotwica;horgony;çapa;якорь;якір;propiedad;proprietà;propriété wikidata", ""},
    // Ages, which count to the day of reading, in other languages.
    {"âge;edad;età;idade;edat;vârstă;alter;leeftijd;ålder;alder;ikä;wiek;věk;életkor;yaş;tuổi;umur;usia;adin;ηλικία", ""},
    {"возраст;вік;عمر;سن;גיל;年齢;年数;年龄;年齡;나이", ""},
    {"age;age in *;age as of*;inflation*;pop density*;to usd;0;00;000;0000;decrease*;increase*;steady;sortkey;hs;hidden*;rating*;stars;color box;colorbox;wikidata*;wd;image*;multiple image", ""},
};
/// Sources: CLDR 44, and Template:Convert of each Wikipedia.
constexpr LanguageStyle kStyles[] = {
    {"en", ",", 4, "{m}[ {d},][ {y}]", "January;February;March;April;May;June;July;August;September;October;November;December"},
    {"fr", " ", 4, "[{d} ]{m}[ {y}]", "janvier;février;mars;avril;mai;juin;juillet;août;septembre;octobre;novembre;décembre"},
    {"es;ast;an", " ", 5, "[{d} de ]{m}[ de {y}]", "enero;febrero;marzo;abril;mayo;junio;julio;agosto;septiembre;octubre;noviembre;diciembre"},
    {"gl", " ", 5, "[{d} de ]{m}[ de {y}]", "xaneiro;febreiro;marzo;abril;maio;xuño;xullo;agosto;setembro;outubro;novembro;decembro"},
    {"it", " ", 5, "[{d} ]{m}[ {y}]", "gennaio;febbraio;marzo;aprile;maggio;giugno;luglio;agosto;settembre;ottobre;novembre;dicembre"},
    {"pt", " ", 5, "[{d} de ]{m}[ de {y}]", "janeiro;fevereiro;março;abril;maio;junho;julho;agosto;setembro;outubro;novembro;dezembro"},
    {"ca", ".", 4, "[{d} ]{m}[ de {y}]", "de gener;de febrer;de març;d'abril;de maig;de juny;de juliol;d'agost;de setembre;d'octubre;de novembre;de desembre"},
    {"ro", ".", 4, "[{d} ]{m}[ {y}]", "ianuarie;februarie;martie;aprilie;mai;iunie;iulie;august;septembrie;octombrie;noiembrie;decembrie"},
    {"de;als;bar;nds", ".", 4, "[{d}. ]{m}[ {y}]", "Januar;Februar;März;April;Mai;Juni;Juli;August;September;Oktober;November;Dezember"},
    {"nl", ".", 4, "[{d} ]{m}[ {y}]", "januari;februari;maart;april;mei;juni;juli;augustus;september;oktober;november;december"},
    {"sv", " ", 4, "[{d} ]{m}[ {y}]", "januari;februari;mars;april;maj;juni;juli;augusti;september;oktober;november;december"},
    {"no;nb;nn", " ", 4, "[{d}. ]{m}[ {y}]", "januar;februar;mars;april;mai;juni;juli;august;september;oktober;november;desember"},
    {"da", ".", 4, "[{d}. ]{m}[ {y}]", "januar;februar;marts;april;maj;juni;juli;august;september;oktober;november;december"},
    {"fi", " ", 4, "[{d}. ]{m}[ {y}]", "tammikuuta;helmikuuta;maaliskuuta;huhtikuuta;toukokuuta;kesäkuuta;heinäkuuta;elokuuta;syyskuuta;lokakuuta;marraskuuta;joulukuuta"},
    {"pl", " ", 5, "[{d} ]{m}[ {y}]", "stycznia;lutego;marca;kwietnia;maja;czerwca;lipca;sierpnia;września;października;listopada;grudnia"},
    {"cs", " ", 4, "[{d}. ]{m}[ {y}]", "ledna;února;března;dubna;května;června;července;srpna;září;října;listopadu;prosince"},
    {"sk", " ", 4, "[{d}. ]{m}[ {y}]", "januára;februára;marca;apríla;mája;júna;júla;augusta;septembra;októbra;novembra;decembra"},
    {"hu", " ", 5, "[{y}. ]{m}[ {d}.]", "január;február;március;április;május;június;július;augusztus;szeptember;október;november;december"},
    {"tr", ".", 4, "[{d} ]{m}[ {y}]", "Ocak;Şubat;Mart;Nisan;Mayıs;Haziran;Temmuz;Ağustos;Eylül;Ekim;Kasım;Aralık"},
    {"id;ms;jv;su;min", ".", 4, "[{d} ]{m}[ {y}]", "Januari;Februari;Maret;April;Mei;Juni;Juli;Agustus;September;Oktober;November;Desember"},
    {"eu", ".", 4, "[{y}ko ]{m}[ {d}a]", "urtarrilaren;otsailaren;martxoaren;apirilaren;maiatzaren;ekainaren;uztailaren;abuztuaren;irailaren;urriaren;azaroaren;abenduaren"},
    {"ru", " ", 4, "[{d} ]{m}[ {y}]", "января;февраля;марта;апреля;мая;июня;июля;августа;сентября;октября;ноября;декабря"},
    {"uk", " ", 4, "[{d} ]{m}[ {y}]", "січня;лютого;березня;квітня;травня;червня;липня;серпня;вересня;жовтня;листопада;грудня"},
    {"el", ".", 4, "[{d} ]{m}[ {y}]", "Ιανουαρίου;Φεβρουαρίου;Μαρτίου;Απριλίου;Μαΐου;Ιουνίου;Ιουλίου;Αυγούστου;Σεπτεμβρίου;Οκτωβρίου;Νοεμβρίου;Δεκεμβρίου"},
    {"ar;arz;ary", ",", 4, "[{d} ]{m}[ {y}]", "يناير;فبراير;مارس;أبريل;مايو;يونيو;يوليو;أغسطس;سبتمبر;أكتوبر;نوفمبر;ديسمبر"},
    {"fa", ",", 4, "[{d} ]{m}[ {y}]", "ژانویه;فوریه;مارس;آوریل;مه;ژوئن;ژوئیه;اوت;سپتامبر;اکتبر;نوامبر;دسامبر"},
    {"he", ",", 4, "[{d} ב]{m}[ {y}]", "ינואר;פברואר;מרץ;אפריל;מאי;יוני;יולי;אוגוסט;ספטמבר;אוקטובר;נובמבר;דצמבר"},
    {"vi", ".", 4, "[{d} ]tháng {m}[ năm {y}]", ""},
    {"ja;zh;yue;wuu", ",", 4, "[{y}年]{m}月[{d}日]", ""},
    {"ko", ",", 4, "[{y}년 ]{m}월[ {d}일]", ""},
};
// clang-format on

/// Calls `take` with every part of `list` between ';', until one returns true.
template <class Take>
bool any_part(std::string_view list, Take&& take) {
  while (!list.empty()) {
    if (take(take_part(list, ';'))) return true;
  }
  return false;
}

/// A table of rows for the search.
class Table {
 public:
  void add(std::string_view names, std::string_view pattern) {
    any_part(names, [&](std::string_view name) {
      if (name.size() > 1 && (name.starts_with('*') || name.ends_with('*') || name.starts_with('#'))) {
        some_.emplace_back(name, pattern);
      } else {
        exact_.emplace(name, pattern);
      }
      return false;
    });
  }

  [[nodiscard]] const std::string_view* exact(std::string_view name) const {
    const auto found = exact_.find(name);
    return found == exact_.end() ? nullptr : &found->second;
  }

  /// The first row with a name that only begins or ends like `name`.
  [[nodiscard]] const std::string_view* like(std::string_view name) const {
    for (const auto& [some, pattern] : some_)
      if (is_like(some, name)) return &pattern;
    return nullptr;
  }

 private:
  static bool is_like(std::string_view some, std::string_view name) {
    if (some.ends_with('*')) return name.starts_with(some.substr(0, some.size() - 1));
    if (some.starts_with('*')) return name.ends_with(some.substr(1));
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    return digits > 0 && name.substr(digits) == some.substr(1);
  }

  std::unordered_map<std::string_view, std::string_view> exact_;
  std::vector<std::pair<std::string_view, std::string_view>> some_;
};

/// The tables by language: "" has the rows of all.
const std::unordered_map<std::string_view, Table>& language_tables() {
  static const auto tables = [] {
    std::unordered_map<std::string_view, Table> made;
    for (const TemplateRow& row : language_templates()) {
      made[""].add(row.names, row.pattern);
      any_part(row.languages, [&](std::string_view language) {
        made[language].add(row.names, row.pattern);
        return false;
      });
    }
    return made;
  }();
  return tables;
}

/// {{who?}}, {{qui ?}}: the name without the sign, which marks of maintenance have or have not.
std::string_view without_question_mark(std::string_view name) {
  for (const std::string_view sign : {"?", "？", "؟"})
    if (name.ends_with(sign)) return trim(name.substr(0, name.size() - sign.size()));
  return name;
}

}  // namespace

const std::string_view* template_pattern(std::string_view language, std::string_view name) {
  static const Table common = [] {
    Table made;
    for (const CommonRow& row : kRows) made.add(row.names, row.pattern);
    return made;
  }();
  static const Table none;
  const auto found = language_tables().find(language);
  const Table& own = found == language_tables().end() ? none : found->second;
  const Table &first = language.empty() ? common : own, &second = language.empty() ? own : common;
  for (const std::string_view spelling : {name, without_question_mark(name)}) {
    if (const auto* pattern = first.exact(spelling)) return pattern;
    if (const auto* pattern = second.exact(spelling)) return pattern;
  }
  if (const auto* pattern = first.like(name)) return pattern;
  return second.like(name);
}

const LanguageStyle& language_style(std::string_view language) {
  for (const LanguageStyle& style : kStyles)
    if (any_part(style.languages, [&](std::string_view one) { return one == language; })) return style;
  return kStyles[0];
}

}  // namespace bert
