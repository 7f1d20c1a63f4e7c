#!/bin/sh
# Prints the line coverage of each parser by its corpus, from clang's counters of the target and its _oom binary together. Fails under 90 %.
# usage: fuzz/coverage.sh BUILD      BUILD: a build with -DLN_FUZZ=ON -DLN_FUZZ_COVERAGE=ON
set -eu
build=${1:?build folder}
cd "$(dirname "$0")/.."
tool() { command -v "$1" || command -v "$1-$(clang -dumpversion | cut -d. -f1)"; }
profdata=$(tool llvm-profdata); cov=$(tool llvm-cov)

# The source files of a target's parser.
files_of() {
    case $1 in
    safetensors) echo src/io/safetensors.c ;;
    json) echo src/base/json_pull.c src/base/json_dom.c ;;
    config) echo src/io/config.c src/io/generation_config.c src/checkpoint/quant_config.c src/model/spec.c src/model/rope_scaling.c src/model/families/*.c ;;
    tokenizer) echo src/tokenizer/tokenizer_open.c src/tokenizer/tokenizer_json.c src/tokenizer/bpe_load.c src/tokenizer/added_tokens.c src/unicode/string_table.c src/tokenizer/pretokenizer_read.c src/tokenizer/post_processor.c \
        src/tokenizer/regex.c src/tokenizer/regex_rewrite.c ;;
    encode) echo src/tokenizer/tokenizer_encode.c src/tokenizer/normalizer.c src/tokenizer/pretokenizer.c src/tokenizer/bpe.c src/tokenizer/merge_queue.c src/unicode/utf8_append.c ;;
    decode) echo src/tokenizer/token_decoder.c src/tokenizer/token_decoder_steps.c src/tokenizer/streaming_detokenizer.c ;;
    body) echo src/wire/body.c src/wire/body_values.c src/wire/messages.c src/wire/answer.c src/wire/logprobs.c ;;
    http) echo src/serve/http_head.c src/serve/http_reader.c ;;
    calls) echo src/chat/tool_calls.c ;;
    sse) echo src/serve/stream.c src/wire/delta.c ;;
    grammar) echo src/grammar/*.c ;;
    jinja) echo src/jinja/jinja_*.c ;;
    adapter) echo src/io/adapter.c src/io/adapter_config.c src/io/name_pattern.c ;;
    index) echo src/io/shards.c ;;
    modules) echo src/io/embedding_files.c src/io/embedding_config.c src/io/embedding_modules.c ;;
    samples) echo src/train/dataset.c src/train/sample_reader.c src/train/foreign_lines.c src/train/foreign_messages.c src/train/records.c src/base/line_reader.c ;;
    batch) echo src/batch/batch_input.c ;;
    gguf) echo src/base/gguf.c src/base/gguf_values.c ;;
    gguf_tokenizer) echo src/tokenizer/tokenizer_gguf.c src/tokenizer/bpe_gguf.c src/tokenizer/bpe_tables.c ;;
    tekken) echo src/tokenizer/tokenizer_tekken.c ;;
    kv) echo src/engine/kv_file.c ;;
    manifest) echo src/train/checkpoint.c ;;
    esac
}

bad=0
for source in fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    corpus=fuzz/corpus/$name
    files=$(files_of "$name")
    [ -d "$corpus" ] && [ -n "$files" ] || { echo "$name: no corpus, or no list of its parser's files here" >&2; bad=1; continue; }
    for twin in "" _oom; do
        LLVM_PROFILE_FILE="$build/$name$twin.profraw" "$build/fuzz_$name$twin" -runs=0 "$corpus" >"$build/$name$twin.log" 2>&1 ||
            { echo "fuzz_$name$twin: fails on its corpus; see $build/$name$twin.log" >&2; bad=1; }
    done
    "$profdata" merge -o "$build/$name.profdata" "$build/$name.profraw" "$build/${name}_oom.profraw"
    # shellcheck disable=SC2086 # a list of files
    "$cov" export -summary-only -format=text -instr-profile="$build/$name.profdata" "$build/fuzz_$name" -object "$build/fuzz_${name}_oom" 2>/dev/null |
        python3 -c '
import json, os, sys
name, n, wanted = sys.argv[1], sys.argv[2], {os.path.realpath(f) for f in sys.argv[3:]}
lines = [(f["filename"], f["summary"]["lines"]) for f in json.load(sys.stdin)["data"][0]["files"]]
lines = [(f.rsplit("/src/", 1)[-1], l) for f, l in lines if os.path.realpath(os.path.join("src", f.rsplit("/src/", 1)[-1])) in wanted]
assert len(lines) == len(wanted), "files without counters"
count, covered = (sum(l[k] for _, l in lines) for k in ("count", "covered"))
for f, l in lines:
    print("    %-26s %4d of %4d lines" % (f, l["covered"], l["count"]))
print("%-11s %5.1f %% of %4d lines reached by %s files" % (name, 100 * covered / count, count, n))
sys.exit(covered < 0.9 * count)' "$name" "$(ls "$corpus" | wc -l)" $files || bad=1
done
exit $bad
