#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "data/wikitext/templates.h"
#include "data/wikitext/text_pieces.h"

namespace bert {
namespace {

struct Row {
  std::string_view names;  // in lower case, separated by ';'
  std::string_view pattern;
};

/// Sources: the documentation pages of the templates in the Wikipedias of their languages.
constexpr Row kRows[] = {
    // Layout around words.
    {"nowrap;nobr;nobreak;j;small;smaller;big;bigger;large;larger;em;strong;bold;nobold;noitalic;normal;italic;b;i;"
     "strikethrough;underline;overline;smallcaps;sc;sc1;sc2;allcaps;mono;code;kbd;keypress;tt;samp;var;"
     "center;centre;left;right;float left;block indent;noindent;midsize;mvar;math;bigmath;xt;!xt;mxt;tq;highlight;"
     "charname;vanchor;visible anchor;anchored;not a typo;proper name;as written;sic "
     "inline;abbr;abbrv;abbrlink;"
     "tooltip;hover title;popup;citation needed span;clarify span;disputed "
     "span;abbreviation;abréviation;abr;abréviation discrète;no wrap;awrap;small caps;not italic;petites "
     "capitales;petit;exposant;ind;indice;corr;kapitälchen;polytonisch;tastatur;taste;hochgestellt;tiefgestellt;text;"
     "plain text;font;resize "
     "text;rtl;ltr;"
     "bdi;dropcap;dropinitial;no selflink;noredirect;plainlink;sup;super;superscript;sub;subscript;su;nowrapped;nowiki",
     "{1}"},
    {"color;font color;fontcolor;colour;audio;audio-nohelp;pronunciation;deutschland-lang;bg", "{2}"},
    {"resize;font size;fontsize;size;style;span;fs", "{2,1}"},
    {"sic", "{1}[ {2}]"},
    {"key press;key", "{*+}"},
    {"unichar", "U+{1}[ {2}]"},
    {"linktext;link text", "{* }"},
    {"hlist;flatlist;flat list;comma separated list;cslist;enum;enumeration;liste horizontale", "{*, }"},
    {"ubl;unbulleted list;plainlist;plain list;vunblist;ordered list;bulleted list;blist", "{*; }"},
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
    {"incise", " – {1} – "},
    {"spaced mdash;mdashb;spmd;spmdash", " — "},
    {"nbsp;spaces;thinsp;thin space;hair space;hairsp;zwsp;pad;space;en space;em space;figure space;nnbsp", " "},
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
    {"ipa", "{2,1}"},  // in a sentence, not in parentheses: is_pronunciation()
    // Words of other languages.
    {"lang;langx;langue;lingua;idioma;lang2;sprache;język", "{texte,text,2}"},
    {"transl;transliteration;translit;xlit;tlit;xlt", "{-1}"},
    {"rtl-lang;script", "{2,1}"},
    {"zh", "{c,t,s,1}[, {p}]"},
    {"korean", "{hangul,1}"},
    {"wikt-lang;m", "{2}"},
    {"unicode;polytonic;hebrew;arabic;ar;nastaliq;nq;he-nikud;sanskrit;iast;iast1;tamil;devanagari;"
     "coptic;"
     "pie;proto;cuneiform;grec;grec "
     "ancien;grc;latin;ens;des;frs;las;els;grcs;rus;uks;ess;its;jas;kos;fas;das;nls;pls;trs;ars;hes;css;hus;pts;"
     "svs;zhs",
     "{1}"},
    {"nihongo;nihongo2;日本語;japonais", "{1}[ ({2}[, {3}])]"},
    {"nihongo3", "{1}[ ({2})]"},
    {"nihongo krt;nihongo foot;nihongo core", "{1}"},
    {"ruby;ruby-ja;ふりがな;ルビ", "{1}[ ({2})]"},
    {"読み仮名;読み仮名 ruby不使用", "{1}[（{2}）]"},
    {"gloss;gls;literal translation;lit;literally", "“{1}”"},
    {"native phrase;native name;nativename", "{2}"},
    // Quotations.
    {"quote;blockquote;bquote;quotation;cquote;rquote;quote block;cite quote;centered pull quote;poemquote;poem quote;"
     "verse translation;poem;quote frame;citation bloc;bloc emphase;début citation "
     "bloc;cita;citazione;citação;citat;cytat;"
     "citaat;zitat;cita destacada;цитата;引文;quote2;quotation2;اقتباس;نقل قول;उद्धरण",
     "\n\n{text,quote,texte,quotetext,1}\n\n"},
    {"\";citation étrangère;citation nécessaire;référence nécessaire;référence souhaitée;refnec;refsou;passage évasif;"
     "pertinence détail;pas clair;formule;évasif",
     "{1}"},
    {"citation", "{1,texte}"},  // French: a quotation in a sentence. English: a source, with named parameters alone
    {"\"-de;anführungszeichen", "„{1}“"},
    // Links.
    {"ill;interlanguage link;link-interwiki;ill2;red link;ill-wd;interlanguage link multi;illm", "{lt,display,1}"},
    {"lien", "{texte,trad,1,fr}"},
    {"仮リンク;ilh", "{label,1}"},
    {"le;link-en;link-ja;link-de;link-fr;link-ko;link-ru;link-es;link-it;internal link helper", "{3,1}"},
    {"tsl;translink;translation link", "{4,3}"},
    {"не переведено;не переведено 2;не переведено 3;не переведено 5;нп;нп2;нп3;нп4;нп5;iw;iw2;w;wl;wikilink;pagelink;"
     "wikt;вікі;вп",
     "{2,1}"},
    {"وإو;وصلة إنترويكي;و.إ", "{تر,1}"},
    {"flag;flagcountry;flagu;flaglink;flagcountry2;flagathlete;pays;bandeira;bandera2;flaga;vlag;flagge", "{name,1}"},
    // Dates and numbers.
    {"née;nee", "née {1}"},
    {"mya;ma", "{1} million years ago"},
    {"section link;slink", "{1} § {2}"},
    {"stn;rws;station", "{1} station"},
    {"bibleref;bibleref2;bibleverse", "{1} {2}"},
    {"us patent", "U.S. Patent {1}"},
    {"oldstyledate", "{1} [O.S. {3}] {2}"},
    {"circa;c.;ca;approx", "c. {1}[–{2}]"},
    {"floruit;fl.", "fl. {1}"},
    {"reign;r.;reigned", "r. {1}[–{2}]"},
    {"born in;b.;born", "b. {1}"},
    {"died in;d.", "d. {1}"},
    {"formatnum;nts;ntsh;number;num;numero;comma;digits;zahl;عدد", "{1}"},
    {"nombre", "{1}[ {2}]"},
    {"gaps", "{*}"},
    {"currency", "{1}[ {2}]"},
    {"val;unité;unit;units;einheit;unita;unidade;unidad;nb", "{1}[×10^{e}][ {u,ul,2}]"},
    {"pow", "{1}[^{2}]"},
    {"exp", "{1}{2}"},
    {"ordinal;ord", "{1}{2}"},
    {"percent;pct;pourcentage", "{1}%"},
    {"siècle;s2", "{1}{2} siècle"},
    {"sp;sp-", "{1}{2}[ {3}][ {4}{5}] siècle"},
    {"av jc", "av. J.-C."},
    {"ap jc", "apr. J.-C."},
    {"1er", "1er"},
    {"er", "er"},
    {"ier", "Ier"},
    {"ire", "Ire"},
    {"re", "re"},
    {"ère", "ère"},
    {"nd", "nd"},
    {"mme", "Mme[ {1}]"},
    {"mlle", "Mlle[ {1}]"},
    {"m.", "M.[ {1}]"},
    {"mgr", "Mgr[ {1}]"},
    {"n°;numéro", "n°[ {1}]"},
    {"heure", "{1} h[ {2}]"},
    {"höhe", "{1} m"},
    {"§", "§ {1}"},
    {"date;date-;date de naissance;date de décès;naissance;décès", "{1}[ {2}[ {3}]]"},
    {"chem;chem2;formule chimique;fchim;chemical formula;chimie", "{*}"},
    {"simplenuclide;simplenuclide2;nuclide;nuclide2;isotope", "{1}[-{2}]"},
    {"co2", "CO2"},
    {"h2o", "H2O"},
    {"railgauge;track gauge;rail gauge", "{1}"},
    {"height", "[{m} m][{ft} ft[ {in} in]]"},
    {"marriage;married", "{1}[ ({2}[–{3}])]"},
    // Ships. {0} is the name of the template.
    {"uss;hms;hmas;hmcs;hmnzs;ss;rms;mv;ms;usns;uscgc;sms;hmt;rfa;ins;jds;gts;hnlms;hdms;hswms;mt;tss", "{0} {1}"},
    {"ship", "{1} {2}"},
    {"sclass;sclass-;sclass2;sclass2-", "{1}-class {2}"},
    {"ship class", "{1}-class"},
    // Arabic and Persian scripts.
    {"نص;خط عربي;نستعلیق", "{1}"},
};

using Patterns = std::unordered_map<std::string_view, std::string_view>;

const Patterns& patterns() {
  static const Patterns table = [] {
    Patterns made;
    for (const Row& row : kRows) {
      for (std::string_view rest = row.names; !rest.empty();) {
        const size_t end = std::min(rest.find(';'), rest.size());
        made.emplace(rest.substr(0, end), row.pattern);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return made;
  }();
  return table;
}

}  // namespace

const std::string_view* template_pattern(std::string_view name) {
  const auto found = patterns().find(name);
  return found == patterns().end() ? nullptr : &found->second;
}

bool is_fraction(std::string_view name) {
  for (const std::string_view one : {"frac", "fraction", "frac2", "sfrac", "bruch"})
    if (name == one) return true;
  return false;
}

bool is_pronunciation(std::string_view name) { return name == "IPA" || name == "ipa"; }

bool is_citation(std::string_view name) {
  if (name.ends_with(" needed")) return false;  // {{citation needed}}, {{cite needed}}
  for (const std::string_view beginning : {"cite ", "vcite", "harv", "internetquelle", "literatur", "ouvrage",
                                           "article", "lien web", "cita ", "citar ", "cytuj"})
    if (name.starts_with(beginning)) return true;
  for (const std::string_view whole : {"citation", "isbn", "issn", "doi", "oclc", "книга", "статья"})
    if (name == whole) return true;
  return false;
}

}  // namespace bert
