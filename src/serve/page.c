/* The page at /: its text, which the assembler puts together from src/serve/page/, and its fields.
 *
 * The policy (Content-Security-Policy) allows the page's own style and script, which it names by their
 * digests, and requests to this server, and nothing else: nothing is loaded from elsewhere, no other site may
 * frame the page, and no text can become HTML (trusted-types 'none'). */
#include "../base/base64.h"
#include "../base/file_text.h"
#include "../base/sha256.h"
#include "server.h"

#include <string.h>

#ifndef LN_PAGE_DIR /* the build gives the absolute path; without it the compiler runs in the root of the \
                       tree */
#define LN_PAGE_DIR "src/serve/page"
#endif
#define PART(name) LN_EMBED_FILE(LN_PAGE_DIR "/" name)

/* clang-format off */
LN_EMBED("ln_page",
        PART("page.html") PART("page.css") PART("page_body.html")
        PART("dom.js") PART("code.js") PART("symbols.js") PART("formula.js") PART("markdown.js")
        PART("store.js") PART("client.js") PART("files.js") PART("tools.js") PART("message.js")
        PART("chat.js") PART("panels.js") PART("presets.js") PART("main.js")
        PART("page_end.html"))
/* clang-format on */

extern const char ln_page_begin[], ln_page_end[];

/* Appends the digest of the text between two tags, as a policy names it. */
static void put_source(ln_str *out, const char *open, const char *close) {
    const char *from = strstr(ln_page_begin, open);
    const char *to = from ? strstr(from, close) : NULL;
    uint8_t digest[LN_SHA256_BYTES];
    ln_sha256 h;
    if (!to) return;
    from += strlen(open);
    ln_sha256_open(&h);
    ln_sha256_add(&h, from, (size_t)(to - from));
    ln_sha256_end(&h, digest);
    ln_str_adds(out, "'sha256-");
    ln_str_base64(out, digest, sizeof digest);
    ln_str_adds(out, "'");
}

static void put_fields(ln_str *out) {
    ln_str_adds(out, "Content-Security-Policy: default-src 'none'; script-src ");
    put_source(out, "<script>", "</script>");
    ln_str_adds(out, "; style-src ");
    put_source(out, "<style>", "</style>");
    ln_str_adds(out, "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                     "frame-ancestors 'none'; "
                     "require-trusted-types-for 'script'; trusted-types 'none'\r\n"
                     "X-Content-Type-Options: nosniff\r\n"
                     "X-Frame-Options: DENY\r\n"
                     "Referrer-Policy: no-referrer\r\n"
                     "Cross-Origin-Opener-Policy: same-origin\r\n"
                     "Cross-Origin-Resource-Policy: same-origin\r\n"
                     "Cache-Control: no-cache\r\n");
}

void handle_page(request_context *x) {
    ln_str fields = {0};
    put_fields(&fields);
    if (fields.failed) request_reject(x, 503, "out_of_memory", "out of memory for an answer");
    else
        request_reply(x, 200, "text/html; charset=utf-8", ln_page_begin,
                      (size_t)(ln_page_end - ln_page_begin), fields.data);
    ln_str_free(&fields);
}
