/* The grammars of answers that are messages with headers (channels.c), as expressions of ln_sampling.grammar.
 * They begin with the header's author, which a prompt ends with. */
#include "tool_calls.h"

#include <string.h>

#define TOKEN(name) "{\"token\":\"<|" name "|>\"}"
#define AUTHOR      TOKEN("start") ",\"assistant\""
#define CONSTRAIN \
    "{\"sequence\":[{\"regex\":\" ?\"}," TOKEN("constrain") ",{\"choice\":[\"json\",\"JSON\"]}]}"
/* Reasoning once, or none. */
#define ANALYSIS                                                           \
    "{\"repeat\":{\"sequence\":[" TOKEN("channel") ",\"analysis\"," TOKEN( \
        "message") ",{\"regex\":\"[\\\\s\\\\S]*\"}," TOKEN("end") "," AUTHOR "]},\"max\":1}"

const char ln_channel_grammar_must[] =
    "{\"sequence\":[" AUTHOR "," ANALYSIS
    ",{\"choice\":[{\"sequence\":[" TOKEN("channel") ",\"commentary to=\"]},\" to=\"]}";

const char ln_channel_grammar_may[] =
    "{\"prose\":[{\"after\":[[" TOKEN("channel") ",{\"text\":\"commentary to=\"}],[" TOKEN(
        "channel") ",{\"text\":\"analysis to=\"}],[" TOKEN("start") ",{\"text\":\"assistant "
                                                                    "to=\"}]],\"then\":";

const char ln_channel_grammar_text[] =
    "{\"sequence\":[{\"repeat\":{\"sequence\":[" TOKEN("channel") ",{\"choice\":[\"commentary\",\"analysis\"]"
                                                                  "}]"
                                                                  "},\"max\":1},{\"choice\":[\"\",\" "
                                                                  "json\"," CONSTRAIN
                                                                  "]}," TOKEN("message") "]}";

void ln_channel_grammar_answer(ln_str *out, const char *grammar, size_t bytes) {
    ln_str_adds(out,
                "{\"sequence\":[" AUTHOR "," ANALYSIS
                "," TOKEN("channel") ",\"final\",{\"choice\":[\"\"," CONSTRAIN "]}," TOKEN("message") ",");
    ln_str_add(out, grammar, bytes);
    ln_str_adds(out, "]}");
}
