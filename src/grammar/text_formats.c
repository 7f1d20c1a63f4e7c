/* The formats of JSON schemas that are regular, as patterns of their whole grammars: RFC 3339, 5321, 1123,
 * 4291, 3986, 3987, 6570, 6901, 4122. */
#include "json_schema.h"

#include <string.h>

/* Days that exist. */
#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DAY  "(0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                          \
    "(" YEAR "-((0[13578]|1[02])-(" DAY "|29|3[01]|30)|(0[469]|11)-(" DAY "|29|30)|02-" DAY ")|" LEAP \
    "-02-29)"
#define HOUR     "([01][0-9]|2[0-3])"
#define PARTS    "(\\.[0-9]{1,17})?"
#define SHIFT    "([Zz]|[+-]" HOUR ":[0-5][0-9])"
#define TIME     "(" HOUR ":[0-5][0-9]:[0-5][0-9]" PARTS SHIFT "|23:59:60" PARTS "[Zz])"
#define N        "[0-9]{1,9}"
#define CLOCK    "T(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S)"
#define DURATION "P(" N "W|(" N "Y(" N "M(" N "D)?)?|" N "M(" N "D)?|" N "D)(" CLOCK ")?|" CLOCK ")"

/* A name of hosts has labels of at most 63 characters and 253 in all: one of at most three labels, or of at
 * most eight shorter ones. */
#define LABEL(most) "[A-Za-z0-9]([A-Za-z0-9-]{0," most "}[A-Za-z0-9])?"
#define HOST        "(" LABEL("61") "(\\." LABEL("61") "){0,2}|" LABEL("28") "(\\." LABEL("28") "){0,7})"
/* With any characters beyond ASCII, of which RFC 5892 excludes some, and without a limit: their ASCII form
 * counts. */
#define MORE     "\\u00a1-\\u3001\\u3003-\\uff0d\\uff0f-\\uff60\\uff62-\\uffef\\u{10000}-\\u{1fffd}"
#define IDN      "[A-Za-z0-9" MORE "]([A-Za-z0-9" MORE "-]*[A-Za-z0-9" MORE "])?"
#define IDN_HOST IDN "([.\\u3002\\uff0e\\uff61]" IDN ")*"
#define OCTET    "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4     "(" OCTET "(\\." OCTET "){3})"
#define H        "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                             \
    "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H ":){1,4}(:" H  \
    "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H "){1,6}|:((:" H            \
    "){1,7}|:)|(" H ":){6}" IPV4 "|::(" H ":){0,5}" IPV4 "|" H "::(" H ":){0,4}" IPV4 "|(" H ":){2}:(" H \
    ":){0,3}" IPV4 "|(" H ":){3}:(" H ":){0,2}" IPV4 "|(" H ":){4}:(" H ":)?" IPV4 "|(" H ":){5}:" IPV4 ")"
#define UUID(version, variant) \
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-" version "[0-9a-fA-F]{3}-" variant "[0-9a-fA-F]{3}-[0-9a-fA-F]{12}"

/* Mail: at most 64 characters before the sign, as a word with points or in quotation marks. */
#define ATOM(more) "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]"
#define MAIL(u, host)                                                                               \
    "(" ATOM(u) "{1,64}|" ATOM(u) "(\\.?" ATOM(u) "){0,31}|\"([ !#-\\[\\]-~" u "]|\\\\[ -~]){0,30}" \
                                                  "\")@(" host "|\\[(" IPV4 "|IPv6:" IPV6 ")\\])"

/* Addresses: u is a character that stands for itself beside those of ASCII. */
#define PERCENT    "%[0-9A-Fa-f]{2}"
#define FREE(u)    "A-Za-z0-9._~!$&'()*+,;=" u
#define C(u, more) "([" FREE(u) more "-]|" PERCENT ")"
#define AUTHORITY(u) \
    "(" C(u, ":") "*@)?(" C(u, "") "*|\\[(" IPV6 "|[vV][0-9A-Fa-f]+\\.[" FREE("") ":-]+)\\])(:[0-9]*)?"
#define SEGMENT(u)   C(u, ":@") "*"
#define TAIL(u)      "(\\?" C(u, ":@/?") "*)?(#" C(u, ":@/?") "*)?"
#define ABSOLUTE(u)  "//" AUTHORITY(u) "(/" SEGMENT(u) ")*|/(" C(u, ":@") "+(/" SEGMENT(u) ")*)?"
#define SCHEME       "[A-Za-z][A-Za-z0-9+.-]*:"
#define ADDRESS(u)   SCHEME "(" ABSOLUTE(u) "|" C(u, ":@") "+(/" SEGMENT(u) ")*|)" TAIL(u)
#define REFERENCE(u) "(" ADDRESS(u) "|(" ABSOLUTE(u) "|" C(u, "@") "+(/" SEGMENT(u) ")*|)" TAIL(u) ")"
#define UCS          "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}"
#define VARIABLE     "([A-Za-z0-9_]|" PERCENT ")(\\.?([A-Za-z0-9_]|" PERCENT "))*(:[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE \
    "([!#$&(-;=?-\\[\\]_a-z~" UCS "]|" PERCENT "|\\{[+#./;?&=,!@|]?" VARIABLE "(," VARIABLE ")*\\})*"
#define POINTER "(/([^~/]|~[01])*)*"

/* Regular expressions that all readers take: groups are nested at most three deep, ranges are the usual ones.
 */
#define R_ESCAPE       "\\\\([dDwWsSbBtnrfv]|[!-/:-@\\[-`{-~]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
#define R_SIGN         "[!-/:-@\\[-`{-~]"
#define R_TIMES        "([*+?][?]?|\\{[0-9]{1,3},?\\}[?]?)?"
#define R_CLASS        "\\[\\^?(a-z|A-Z|0-9|a-f|A-F|[^\\\\\\[\\]^-]|\\\\([dDwWsStnrfv]|" R_SIGN "))+-?\\]"
#define R_PART         "([^\\\\()\\[\\]{}*+?|^$]|" R_ESCAPE "|" R_CLASS ")" R_TIMES "|[\\^$]"
#define R_LIST(part)   "(" part ")*(\\|(" part ")*)*"
#define R_GROUP(inner) R_PART "|\\((\\?[:=!])?" inner "\\)" R_TIMES
#define R_1            R_LIST(R_PART)
#define R_2            R_LIST(R_GROUP(R_1))
#define REGEX          R_LIST(R_GROUP(R_2))

const char *gr_format(const char *name) {
    static const struct {
        const char *name, *pattern;
    } known[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "[Tt]" TIME},
        {"duration", DURATION},
        {"email", MAIL("", HOST)},
        {"idn-email", MAIL(MORE, IDN_HOST)},
        {"hostname", HOST},
        {"idn-hostname", IDN_HOST},
        {"ipv4", IPV4},
        {"ipv6", IPV6},
        {"ipvanyaddress", IPV4 "|" IPV6}, /* pydantic's, like uuid1 .. uuid5 */
        {"uuid", UUID("[0-9a-fA-F]", "[0-9a-fA-F]")},
        {"uuid1", UUID("1", "[89abAB]")},
        {"uuid3", UUID("3", "[89abAB]")},
        {"uuid4", UUID("4", "[89abAB]")},
        {"uuid5", UUID("5", "[89abAB]")},
        {"uri", ADDRESS("")},
        {"uri-reference", REFERENCE("")},
        {"iri", ADDRESS(UCS)},
        {"iri-reference", REFERENCE(UCS)},
        {"uri-template", TEMPLATE},
        {"json-pointer", POINTER},
        {"regex", REGEX},
        {"relative-json-pointer", "(0|[1-9][0-9]*)(#|" POINTER ")"},
    };
    for (size_t i = 0; i < LN_COUNT(known); i++)
        if (strcmp(name, known[i].name) == 0) return known[i].pattern;
    return NULL;
}
