#!/bin/sh
# tools/lint_words: what it finds and what not, and that the baseline only falls.
# usage: tests/lint/words.sh SOURCE
set -u
src=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
check() { # check NAME COMMAND...: the command must succeed
    title=$1; shift
    if "$@" >"$dir/log" 2>&1; then passed=$((passed + 1)); echo "[       OK ] $title"
    else failed=$((failed + 1)); echo "[  FAILED  ] $title"; head -c 4000 "$dir/log"; fi
}
tree=$dir/tree
begin() { # an empty tree with the tool and its table
    rm -rf "$tree"; mkdir -p "$tree/tools" "$tree/src"
    cp "$src/tools/lint_words" "$src/tools/counted_words" "$tree/tools"
}
lint() { "$tree/tools/lint_words" "$@" "$tree"; }
found() { # found FILE NAME COUNT: the tool lists so many places of this name in the file
    n=$("$tree/tools/lint_words" --list "$1" | grep -c ": $2: ")
    [ "$n" = "$3" ] || { echo "$1: '$2' $n times, expected $3"; "$tree/tools/lint_words" --list "$1"; return 1; }
}
tab=$(printf '\t')

# Each row of the table, in a comment, a message and a paragraph; and what it must not find.
examples() {
    begin
    grep -v '^#' "$tree/tools/counted_words" >"$dir/table"
    while IFS=$tab read -r name expression except example counter instead; do
        printf '/* %s. */\nint f(void);\n' "$example" >"$tree/src/example.c"
        printf '/* %s. */\nint f(void);\n' "$counter" >"$tree/src/counter.c"
        found src/example.c "$name" 1 && found src/counter.c "$name" 0 || return 1
        ! lint || { echo "a new file with '$example' passes"; return 1; }
        rm "$tree/src/example.c"
        lint || return 1
    done <"$dir/table"
    [ "$(wc -l <"$dir/table")" -ge 12 ]
}
check "each word is found, and its counter-example is not" examples

places() {
    begin
    cat >"$tree/src/a.c" <<'END'
/* The first line, and
 * where it is set, the second: a room. */
static const char *const key = "form", *const text = "the form "
                                                     "where it is set"; // a room
static int room = 'x', at; /* `form` is code */
END
    found src/a.c where 2 && found src/a.c form 1 && found src/a.c room 3 || return 1
    mkdir "$tree/tests"
    sed 's/^/  /' "$tree/src/a.c" >"$tree/tests/a.c" # texts of tests are not messages
    found tests/a.c where 1 && found tests/a.c form 0 || return 1
    printf 'A `form`, and a\nform.\n\n```\na form\n```\n\n| a form | b |\n' >"$tree/a.md"
    found a.md form 2 || return 1
    printf '#!/bin/sh\n# A form.\necho "a form"\n' >"$tree/tools/run"
    found tools/run form 1 || return 1
    printf '/* One: two: three. One: two. Four; five; six. A::b and http://c are no marks. */\n' >"$tree/src/b.h"
    found src/b.h marks 2 || return 1
    cat >"$tree/src/table.c" <<'END'
/* The fields of a class: the columns; a note.
 * size        1     null: none
 * bias        2     q, k: alike
 * RoPE        3     theta: 1; scaling; none
 * tied        4     one: two: three
 * space       5     a room
 * After: the table: it ends. */
END
    found src/table.c marks 1 && found src/table.c room 1
}
check "comments, messages and documentation count, code does not" places

falls() {
    begin
    printf '/* A room. */\n/* A room. */\n/* A form. */\n' >"$tree/src/a.c"
    printf 'src/a.c\troom\t2\nsrc/a.c\tform\t3\nsrc/gone.c\troom\t1\n' >"$tree/tools/words_baseline"
    lint || return 1
    printf '/* A room. */\n' >>"$tree/src/a.c"
    ! lint || { echo "three of two rooms pass"; return 1; }
    lint --lower || return 1
    printf 'src/a.c\troom\t2\nsrc/a.c\tform\t1\n' | diff - "$tree/tools/words_baseline" || { echo "--lower"; return 1; }
    ! lint || { echo "--lower allowed what was added"; return 1; }
}
check "the baseline only falls" falls

moves() {
    begin
    printf '/* A room. */\n' >"$tree/src/a.c"
    printf '/* A room. */\n/* A room. */\n/* A form. */\n' >"$tree/src/b.c"
    printf 'src/a.c\troom\t2\n' >"$tree/tools/words_baseline"
    lint --move src/a.c src/b.c || return 1
    printf 'src/a.c\troom\t1\nsrc/b.c\troom\t1\n' | diff - "$tree/tools/words_baseline" || return 1
    rm "$tree/src/a.c"
    lint --move src/a.c src/b.c || return 1
    printf 'src/b.c\troom\t2\n' | diff - "$tree/tools/words_baseline" || return 1
    ! lint || { echo "a form that the old file did not have was moved"; return 1; }
}
check "text that moves takes its counts along" moves

table() {
    begin
    printf 'x\t nowhere \t-\tan example\tanother\tinstead\n' >>"$tree/tools/counted_words"
    ! lint || { echo "an expression that does not find its example passes"; return 1; }
}
check "the table is checked" table

[ "$failed" -gt 0 ] && echo "[  FAILED  ] $failed test(s)"
echo "[  PASSED  ] $passed test(s)."
exit $((failed > 0))
