// The words and signs that split_sentences knows in a text of any language. Those of single languages stand in
// sentence_languages.h, every use in sentence_splitter.cc.
//
// A list of words is one string, with a space between words. A word in lower case stands for itself in any case; a word
// with a capital stands for that spelling alone ("Mass", since "mass" ends sentences). Abbreviations stand without their
// last full stop. Sources: the abbreviations of the Chicago Manual of Style (17th edition, chapter 10) and those that
// the test data of tests/data/sentences and the English, German, French, Spanish and Russian treebanks of Universal
// Dependencies 2.x showed.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace bert::sentence_rules {

// ---- abbreviations, by the text that may follow within the sentence ----

/// Any text follows: titles, and abbreviations that introduce something.
inline constexpr std::string_view kNeverEnd =
    "mr mrs ms mx messrs mme mmes mlle dr drs prof profs Rev Revd Hon Gen Brig Col lt capt cmdr cdr sgt cpl pvt adm "
    "maj "
    "Gov Sen Rep Reps Pres supt insp det msgr archbp bp mt vs v viz cf e.g i.e eg ie ca approx incl esp resp ps p.s "
    "n.b av apr EE "
    // German, French, Spanish, Italian, Dutch, Polish
    "bzw gegr vgl evtl ggf inkl zzgl bspw sog geb gest hrsg ing dipl mgr ste sra srta dra dña ud uds exmo sig dott dhr "
    "mevr bijv drs np tzw tzn "
    // Russian, Arabic, Hindi
    "т.е т.к им ул проф акад пр пл род ум обл ред изд св د أ डॉ प्रो";

/// A number follows: digits.
inline constexpr std::string_view kBeforeDigits =
    "no nos nr nrs num núm n° nº n p c b d r s l fl pop ext tel sec sect art arts abs str op jan feb mar Apr jun jul "
    "aug "
    "sep sept oct okt nov dec dez janv févr avr juil déc hab ок стр рис гл тел см ч app tab chap chaps";

/// A number follows: digits, a Roman numeral or a single capital.
inline constexpr std::string_view kBeforeNumerals =
    "vol vols fig figs pp pt pts ch chs bk eq eqs eqn pl mk jg bd bde t kap pág págs";

/// A sentence may end here, and does so before a frequent first word of a sentence (kStarters). Initialisms such as U.S
/// and Ph.D behave the same.
inline constexpr std::string_view kMayEnd =
    "st UU ft ave blvd rd jr sr esq inc ltd co corp cos llc plc bros pty gmbh assn assoc dept univ inst acad soc div "
    "mfg al "
    "ibid cit std fr wm geo chas thos jas dist sq mi km lb lbs oz hr hrs min jct hwy bldg apt mtn "
    "mon tue tues wed thu thur thurs fri intl natl govt gov't ass'n int'l nat'l biol chem phys med proc trans eng rev "
    "hist "
    "lett math sci quart bull symp conf ph mio mrd jh jhd chr ed eds ser suppl "
    "Ala Ariz Ark Calif Cal Colo Conn Del Fla Ga Ill Ind Kan Kans Ky La Mass Md Mich Minn Miss Mo Mont Neb Nebr Nev "
    "Okla "
    "Ore Pa Penn Tenn Tex Va Vt Wash Wis Wisc Wyo Ont Alta Que Sask г гг вв им";

/// Hours, which end a sentence before a capital, but for the names of kTimeWords.
inline constexpr std::string_view kHours = "a.m p.m";
inline constexpr std::string_view kTimeWords =
    "EST EDT ET CST CDT CT MST MDT MT PST PDT PT GMT UTC BST CET CEST IST JST Eastern Central Pacific Greenwich Monday "
    "Tuesday Wednesday Thursday Friday Saturday Sunday";

/// Names that end with an exclamation mark.
inline constexpr std::string_view kExclaimedNames = "Yahoo Jeopardy Yum Oklahoma Jumpin";

// ---- the beginning of the next sentence ----

/// Words that often begin a sentence and seldom a name.
inline constexpr std::string_view kStarters =
    "the a an this that these those he she it they we i you his her its their our my your there here who whose what "
    "when "
    "where why how which if in on at by for from with without within as after before during since until while although "
    "though because and but or nor so yet then thus therefore hence however moreover furthermore nevertheless "
    "nonetheless "
    "also both each every all some many most several few no not none one two three another such is are was were do "
    "does "
    "did has had have can could will would should must let now today once only even just still instead meanwhile "
    "otherwise perhaps maybe according among despite besides through throughout later eventually finally soon nobody "
    "nothing everyone everybody someone something anyone to of about neither either it's don't "
    // German, French, Spanish, Russian
    "der die das ein eine er sie es wir ich im und aber il elle ils elles nous je ce cette dans mais el ella los las "
    "en "
    "pero on она он они мы я в на это но и";

/// Those of kStarters that are also surnames: after an initial they are taken for one.
inline constexpr std::string_view kNames =
    "an do he may no so will you my her les das der die la le el los las such in";

/// Verbs of a speaker named after a quotation: "Why?" Mary asked.
inline constexpr std::string_view kSpeechVerbs =
    "said say says asked ask asks cried cry cries replied reply replies started howled wailed yelped chuckled grunted "
    "squeaked answered exclaimed shouted screamed yelled whispered murmured muttered "
    "mumbled demanded inquired enquired repeated returned retorted continued added began interrupted interposed "
    "observed "
    "remarked called echoed gasped groaned sighed sobbed laughed growled snapped snarled roared hissed stammered "
    "pleaded "
    "begged ventured suggested insisted protested responded rejoined declared announced agreed persisted thought "
    "wondered "
    "faltered ejaculated bellowed barked beams beamed";

// ---- signs ----

/// Signs after which a sentence ends only before white space, beside . ! ? and the ellipsis.
inline constexpr std::array<char32_t, 5> kSpacedSigns = {U'\u203c', U'\u203d', U'\u2047', U'\u2048', U'\u2049'};

/// Signs after which a sentence ends at once: Unicode 16.0's property Sentence_Terminal above U+007F, without the Latin
/// signs (U+2024, kSpacedSigns, U+2E2E to U+2E61) and without U+104A, a comma in today's Burmese.
/// Source: https://www.unicode.org/Public/16.0.0/ucd/PropList.txt.
inline constexpr std::array<std::pair<char32_t, char32_t>, 79> kTerminators = {{
    {0x0589, 0x0589},   {0x061D, 0x061F},   {0x06D4, 0x06D4},   {0x0700, 0x0702},   {0x07F9, 0x07F9},
    {0x0837, 0x0837},   {0x0839, 0x0839},   {0x083D, 0x083E},   {0x0964, 0x0965},   {0x104B, 0x104B},
    {0x1362, 0x1362},   {0x1367, 0x1368},   {0x166E, 0x166E},   {0x1735, 0x1736},   {0x17D4, 0x17D5},
    {0x1803, 0x1803},   {0x1809, 0x1809},   {0x1944, 0x1945},   {0x1AA8, 0x1AAB},   {0x1B4E, 0x1B4F},
    {0x1B5A, 0x1B5B},   {0x1B5E, 0x1B5F},   {0x1B7D, 0x1B7F},   {0x1C3B, 0x1C3C},   {0x1C7E, 0x1C7F},
    {0x2CF9, 0x2CFB},   {0x3002, 0x3002},   {0xA4FF, 0xA4FF},   {0xA60E, 0xA60F},   {0xA6F3, 0xA6F3},
    {0xA6F7, 0xA6F7},   {0xA876, 0xA877},   {0xA8CE, 0xA8CF},   {0xA92F, 0xA92F},   {0xA9C8, 0xA9C9},
    {0xAA5D, 0xAA5F},   {0xAAF0, 0xAAF1},   {0xABEB, 0xABEB},   {0xFE12, 0xFE12},   {0xFE15, 0xFE16},
    {0xFE52, 0xFE52},   {0xFE56, 0xFE57},   {0xFF01, 0xFF01},   {0xFF0E, 0xFF0E},   {0xFF1F, 0xFF1F},
    {0xFF61, 0xFF61},   {0x10A56, 0x10A57}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x11047, 0x11048},
    {0x110BE, 0x110C1}, {0x11141, 0x11143}, {0x111C5, 0x111C6}, {0x111CD, 0x111CD}, {0x111DE, 0x111DF},
    {0x11238, 0x11239}, {0x1123B, 0x1123C}, {0x112A9, 0x112A9}, {0x113D4, 0x113D5}, {0x1144B, 0x1144C},
    {0x115C2, 0x115C3}, {0x115C9, 0x115D7}, {0x11641, 0x11642}, {0x1173C, 0x1173E}, {0x11944, 0x11944},
    {0x11946, 0x11946}, {0x11A42, 0x11A43}, {0x11A9B, 0x11A9C}, {0x11C41, 0x11C42}, {0x11EF7, 0x11EF8},
    {0x11F43, 0x11F44}, {0x16A6E, 0x16A6F}, {0x16AF5, 0x16AF5}, {0x16B37, 0x16B38}, {0x16B44, 0x16B44},
    {0x16D6E, 0x16D6F}, {0x16E98, 0x16E98}, {0x1BC9F, 0x1BC9F}, {0x1DA88, 0x1DA88},
}};

/// Full stops among kTerminators that also stand within numbers and names.
inline constexpr std::array<char32_t, 2> kWideFullStops = {0xFE52, 0xFF0E};

/// Text after a closing bracket of Chinese or Japanese that continues the sentence: particles and commas.
inline constexpr std::array<std::string_view, 9> kContinuations = {"と", "って",   "など",   "を",    "が",
                                                                   "の", "\u3001", "\uff0c", "\uff1a"};

/// Bullets of lists.
inline constexpr std::array<char32_t, 6> kBullets = {U'\u2022', U'\u2023', U'\u2043', U'\u25e6', U'\u25aa', U'\u00b7'};

/// Faces that follow a sentence.
inline constexpr std::array<std::string_view, 9> kFaces = {":)", ":-)", ":(", ":-(", ":D", ":-D", ";)", ";-)", ":P"};

}  // namespace bert::sentence_rules
