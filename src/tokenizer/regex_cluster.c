/* The pattern that \X stands for: an extended grapheme cluster by Unicode's rules GB3 to GB9b and GB11 to
 * GB13 (UAX 29), as in the reference. PCRE2's own \X joins pictographs without a joiner between them. Rule
 * GB9c (Indic conjuncts, Unicode 15.1) is not in the reference either.
 *
 *   cluster = CR LF | control | prepended* core extending*
 *   core    = a Hangul syllable | two regional indicators | pictographs joined by ZWJ | one character
 *
 * A cluster begins with any character; the whole is atomic, as the reference's. */
#include "tokenizer_internal.h"

#define ZWJ    "\\x{200d}"
#define EXTEND "[\\p{Grapheme_Extend}\\p{Emoji_Modifier}]"
#define NOT_SPACING                                                                                 \
    "\\x{102b}\\x{102c}\\x{1038}\\x{1062}-\\x{1064}\\x{1067}-\\x{106d}\\x{1083}\\x{1087}-\\x{108c}" \
    "\\x{108f}\\x{109a}-\\x{109c}\\x{1a61}\\x{1a63}\\x{1a64}\\x{aa7b}\\x{aa7d}\\x{11720}\\x{11721}"
#define EXTENDING "(?:" EXTEND "|" ZWJ "|(?![" NOT_SPACING "])[\\p{Mc}\\x{e33}\\x{eb3}])"
#define PREPENDED                                                                                            \
    "[\\p{Prepended_Concatenation_Mark}\\x{d4e}\\x{111c2}\\x{111c3}\\x{1193f}\\x{11941}\\x{11a3a}\\x{11a84}" \
    "-"                                                                                                      \
    "\\x{11a89}\\x{11d46}\\x{11f02}]"
#define CONTROL                                                                                             \
    "(?:[\\p{Cc}\\p{Zl}\\p{Zp}]|(?![" ZWJ "\\p{Grapheme_Extend}\\p{Prepended_Concatenation_Mark}])\\p{Cf}|" \
    "(?=\\p{Cn})(?!\\p{Grapheme_Extend})\\p{Default_Ignorable_Code_Point})"
/* Hangul: L, V and T are jamo; LV and LVT syllables without and with a final consonant. */
#define L        "[\\x{1100}-\\x{115f}\\x{a960}-\\x{a97c}]"
#define V        "[\\x{1160}-\\x{11a7}\\x{d7b0}-\\x{d7c6}]"
#define T        "[\\x{11a8}-\\x{11ff}\\x{d7cb}-\\x{d7fb}]"
#define SYLLABLE "[\\x{ac00}-\\x{d7a3}]"

enum { FIRST_LV = 0xac00, LAST_LV = 0xd788, FINALS = 28 };

void regex_cluster(ln_str *out) {
    ln_str_adds(out, "(?>\\r\\n|" CONTROL "|" PREPENDED "*(?:" L "*(?:" V "+|(?=[");
    for (unsigned c = FIRST_LV; c <= LAST_LV; c += FINALS) ln_str_addf(out, "\\x{%x}", c);
    ln_str_adds(out, "])" SYLLABLE V "*|" SYLLABLE ")" T "*|" L "+|" T "+|\\p{Regional_Indicator}{2}|"
                     "\\p{Extended_Pictographic}(?:" EXTEND "*" ZWJ "\\p{Extended_Pictographic})*|"
                     "(?!" CONTROL ")[\\s\\S])" EXTENDING "*)");
}
