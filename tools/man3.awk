# Generates the manual page in section 3 of a public header: comments become paragraphs, declarations are copied.
# The header's first line names the page: "/* linnet_tools - scores ...".
# usage: awk -v version=X -f tools/man3.awk include/linnet_tools.h
function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}
function say(text) { print roff(text) }
function code_begins() { if (!code) print ".PP\n.nf\n.RS 4"; code = 1 }
function code_ends() { if (code) print ".RE\n.fi"; code = 0 }
# A line of a comment without its delimiters; sets `closed` at the end of the comment.
function comment(line) {
    closed = sub(/ *\*\/[ \t]*$/, "", line)
    sub(/^\/\*[ ]?/, "", line)
    sub(/^ \*[ ]?/, "", line)
    sub(/^[ ]+/, "", line)
    return line
}
NR == 1 {
    line = comment($0)
    page = line
    sub(/ - .*/, "", page)
    sub(/^[a-z_]+ - /, "", line)
    print ".TH \"" page "\" 3 \"\" \"linnet " version "\" \"linnet\"\n.SH NAME"
    first = 1
    print page " \\- " roff(line)
    inside = 1
    next
}
inside {
    line = comment($0)
    if (line == "" && first) { # the sentence of the NAME section ends
        first = 0
        print ".SH SYNOPSIS\n.nf\n.B #include <" page ".h>\n.PP"
        print "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs linnet)\n.fi\n.SH DESCRIPTION"
    }
    else if (line == "") { if (!closed) print ".PP" }
    else say(line)
    if (closed) inside = 0
    next
}
/^#if/ { if (++depth > 1) skipping = 1; next }
/^#endif/ { depth--; if (depth <= 1) skipping = 0; next }
skipping || /^#include/ || /^#ifdef/ || /^#define LINNET_([A-Z]+_)?H/ || /^#else/ { next }
/^\/\* ---- .* -+ \*\/$/ {
    code_ends()
    line = $0
    gsub(/^\/\* -+ | -+ \*\/$/, "", line)
    print ".SH " roff(toupper(line))
    next
}
/^\/\*/ {
    code_ends()
    print ".PP"
    say(comment($0))
    if (!closed) inside = 1
    next
}
/^[ \t]*$/ { code_ends(); next }
{
    code_begins()
    line = $0
    gsub(/LN_API |LN_MUST_CHECK |[ ]?LN_PRINTF\([0-9], [0-9]\)/, "", line)
    if (match(line, /^LN_DEFAULT\([a-z_]+\)/)) { # what the macro declares
        name = substr(line, 12, RLENGTH - 12)
        line = name " " name "_default(void);" substr(line, RLENGTH + 1)
    }
    say(line)
}
END {
    code_ends()
    print ".SH SEE ALSO\n.BR linnet (1)" (page == "linnet" ? ",\n.BR linnet_tools (3),\n.BR linnet_train (3),\n.BR linnet_backend (3)" : ",\n.BR linnet (3)")
}
