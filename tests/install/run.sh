#!/bin/sh
# The library as others get it: installed into an empty folder, moved, and used from there by C, C++, pkg-config and CMake.
# usage: tests/install/run.sh SOURCE BUILD [-Werror]
set -u
src=$1 build=$2 werror=${3:-}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
check() { # check NAME COMMAND...: the command must succeed
    name=$1; shift
    if "$@" >"$dir/log" 2>&1; then passed=$((passed + 1)); echo "[       OK ] $name"
    else failed=$((failed + 1)); echo "[  FAILED  ] $name"; head -c 4000 "$dir/log"; fi
}
finish() {
    [ "$failed" -gt 0 ] && echo "[  FAILED  ] $failed test(s)"
    echo "[  PASSED  ] $passed test(s)."
    exit $((failed > 0))
}

check installs cmake --install "$build" --strip --prefix "$dir/first" # as `make install` does
[ "$failed" = 0 ] || finish
mv "$dir/first" "$dir/moved"
root=$dir/moved
pc=$(dirname "$(find "$root" -name linnet.pc)")
lib=$(dirname "$(find "$root" -name liblinnet.a)")
model=$root/share/linnet/models/tiny
export PKG_CONFIG_PATH="$pc" LD_LIBRARY_PATH="$lib"
CC=${CC:-cc}

complete() {
    for f in "$root/bin/linnet" "$root/include/linnet.h" "$root/include/linnet_tools.h" "$root/include/linnet_train.h" "$root/include/linnet_backend.h" "$lib/liblinnet.so" "$lib/liblinnet.so.0" "$model/config.json" "$root/share/man/man1/linnet.1" \
             "$root/share/man/man3/linnet.3" "$root/share/man/man3/linnet_train.3"; do
        [ -e "$f" ] || { echo "missing: $f"; return 1; }
    done
    readelf -d "$lib/liblinnet.so" | grep -q 'SONAME.*\[liblinnet\.so\.0\]' || { echo "no soname liblinnet.so.0"; return 1; }
    readelf -d "$lib/liblinnet.so" | grep -q NODELETE || { echo "unloading would pull the code from under its threads"; return 1; }
    "$root/bin/linnet" --version
}
check "everything is there" complete

stripped() {
    for f in "$root/bin/linnet" "$lib/liblinnet.so" "$lib/liblinnet.a"; do
        readelf -S "$f" | grep -q '\.text' || { echo "not understood: $f"; return 1; }
        ! readelf -S "$f" | grep -q '\.debug_info' || { echo "debugging information: $f"; return 1; }
    done
    grep -q 'cmake --install $(BUILD) $(STRIP)' "$src/Makefile"
}
check "nothing has debugging information" stripped

# The compiler's protections are in the library and in the command, if this compiler has them.
hardened() {
    for f in "$root/bin/linnet" "$lib/liblinnet.so"; do
        readelf -lW "$f" | grep -q 'GNU_RELRO' || { echo "no relro: $f"; return 1; }
        if [ "$(uname -m)" = x86_64 ] && echo 'int x;' | $CC -fcf-protection=full -x c -c - -o "$dir/x.o" 2>/dev/null; then
            [ "$(objdump -d "$f" | grep -c endbr64)" -gt 1000 ] || { echo "no landing pads for indirect calls: $f"; return 1; }
        fi
        if [ "$(uname -m)" = x86_64 ] && echo 'int x;' | $CC -fstack-clash-protection -x c -c - -o "$dir/x.o" 2>/dev/null; then
            objdump -d "$f" | grep -q 'or[qbl]* *\$0x0,.*(%rsp' || { echo "no probes of the stack: $f"; return 1; }
        fi
    done
}
check "the compiler's protections are on" hardened

# The bundled model of a tree that was moved, and that of the library which a program of somewhere else uses.
moved() {
    [ "$("$root/bin/linnet" show tiny --json | sed 's/.*"path":"\([^"]*\)".*/\1/')" = "$model" ] || return 1
    mkdir -p "$dir/elsewhere" && $CC -std=c17 "$src/tests/install/where.c" $(pkg-config --cflags --libs linnet) -o "$dir/elsewhere/where" || return 1
    (cd / && [ "$("$dir/elsewhere/where")" = "$model" ]) || return 1
    mkdir -p "$dir/beside/bin" "$dir/beside/share" && cp "$root/bin/linnet" "$dir/beside/bin" && cp -R "$root/share/linnet" "$dir/beside/share" || return 1
    (cd / && "$dir/beside/bin/linnet" show tiny | grep -q "$dir/beside/share/linnet/models/tiny")
}
check "a moved tree finds its model" moved

# What a program is compiled with is the program's.
cflags() { [ "$(pkg-config --cflags linnet | sed 's/ *$//')" = "-I$root/include" ] || [ "$(pkg-config --cflags linnet | sed 's/ *$//')" = "-I$lib/pkgconfig/../../include" ]; }
check "--cflags has the headers' folder and nothing else" cflags

# Directories given as absolute ones (Nix, Guix): configured only.
absolute() {
    cmake -G Ninja -S "$src" -B "$dir/absolute" -DCMAKE_INSTALL_PREFIX=/opt/x -DCMAKE_INSTALL_LIBDIR=/opt/y/lib -DCMAKE_INSTALL_INCLUDEDIR=/opt/z/include || return 1
    cat "$dir/absolute/linnet.pc" "$dir/absolute/linnetConfig.cmake"
    grep -qx 'libdir=/opt/y/lib' "$dir/absolute/linnet.pc" && grep -qx 'includedir=/opt/z/include' "$dir/absolute/linnet.pc" || return 1
    grep -q '"/opt/y/lib" ABSOLUTE' "$dir/absolute/linnetConfig.cmake" && grep -q '"/opt/z/include" ABSOLUTE' "$dir/absolute/linnetConfig.cmake"
}
check "absolute directories" absolute
refused() { # rejected REASON OPTION...: CMake does not configure, and says why
    reason=$1; shift; rm -rf "$dir/refused"
    ! cmake -G Ninja -S "$src" -B "$dir/refused" "$@" >"$dir/refused.log" 2>&1 || return 1
    tr -s ' \n' ' ' <"$dir/refused.log" | grep -q "$reason"
}
check "what cannot be linked is refused" refused 'cannot be linked into one object' -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON
! command -v clang >/dev/null || check "-flto with clang is refused" refused 'flto needs gcc' -DCMAKE_C_COMPILER=clang -DCMAKE_C_FLAGS=-flto

# Each header compiles by itself, in C and in C++, and twice.
alone() { # alone COMPILER SUFFIX STANDARD
    for h in "$root"/include/linnet*.h; do
        name=$(basename "$h")
        printf '#include <%s>\n#include <%s>\nint main(void) { return ln_version() == 0; }\n' "$name" "$name" >"$dir/alone.$2"
        $1 -std="$3" -Wall -Wextra -Wpedantic -Wconversion $werror "$dir/alone.$2" $(pkg-config --cflags --libs linnet) -o "$dir/alone" && "$dir/alone" || { echo "$name"; return 1; }
    done
}
check "each header compiles alone" alone "$CC" c c17
! command -v "${CXX:-c++}" >/dev/null || check "each header compiles alone, in C++" alone "${CXX:-c++}" cpp c++17

# What the headers declare, and nothing else.
cat "$root"/include/linnet*.h | sed -n 's/^LN_API .*[ *]\(ln_[a-z0-9_]*\)(.*/\1/p' | sort >"$dir/declared"
exports() { # exports FILE NM-OPTION
    [ "$(wc -l <"$dir/declared")" -gt 20 ] || { echo "the headers were not understood"; return 1; }
    nm $2 --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort >"$dir/exported"
    diff "$dir/declared" "$dir/exported"
}
check "the shared library exports the headers" exports "$lib/liblinnet.so" -D
check "the static library exports the headers" exports "$lib/liblinnet.a" -g

# What belongs to the program is left to it. sigaction serves ln_guard_files; fork and _exit the child process of a backend, which
# executes Python at once; dlopen devices that are plug-ins, and in the CUDA plug-in the driver's version, NCCL, and cuBLAS, which only measuring uses. In
# mpi_ranks.c dlopen is for MPI, and _exit for a process whose ranks have failed (ln_ranks_join). Only those files may call them.
minds_its_business() {
    nm -D --undefined-only "$lib/liblinnet.so" | sed 's/.* //; s/@.*//' | sort -u >"$dir/wanted"
    grep -q '^memcpy$' "$dir/wanted" || { echo "the list was not understood"; return 1; }
    ! grep -xE 'abort|exit|_Exit|quick_exit|atexit|printf|vprintf|__printf_chk|puts|putchar|signal|setlocale|chdir|fchdir|umask|system|popen|vfork|srand|rand|setenv|putenv' "$dir/wanted" || return 1
    find "$src/src" -name '*.c' ! -path '*/cli/*' ! -path '*/serve/*' -exec awk '
        !/^ ?\/?\*/ && /(^|[^a-z_])(fork|_exit|dlopen)\(/ { print FILENAME }' {} + | sed "s#^$src/##" | sort -u >"$dir/callers" # not in comments
    printf '%s\n' src/base/mpi_ranks.c src/child/child_process.c src/device/cuda/cuda_device.c src/device/cuda/cuda_measure.c src/device/cuda/cuda_nccl.c src/device/plugins.c | diff - "$dir/callers"
}
check "the library calls nothing that is the program's" minds_its_business

flags="-std=c17 -O1 -Wall -Wextra $werror"
by_pkg_config() {
    mkdir -p "$dir/shared" "$dir/static"
    for x in generate chat classify plan; do
        $CC $flags "$src/examples/$x.c" $(pkg-config --cflags --libs linnet) -o "$dir/shared/$x" || return 1
        $CC $flags "$src/examples/$x.c" $(pkg-config --cflags linnet) "$lib/liblinnet.a" $(pkg-config --static --libs-only-l linnet | sed 's/-llinnet//') -o "$dir/static/$x" || return 1
    done
    ldd "$dir/shared/plan" | grep -q "$lib/liblinnet.so.0" && ! ldd "$dir/static/plan" | grep -q liblinnet
}
check "examples by pkg-config, shared and static" by_pkg_config
by_cmake() {
    cmake -S "$src/examples" -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_FLAGS="$flags" && cmake --build "$dir/cmake" || return 1
    sed 's/linnet::linnet/linnet::static/' "$src/examples/CMakeLists.txt" >"$dir/CMakeLists.txt" && cp "$src"/examples/*.c "$dir" || return 1
    cmake -S "$dir" -B "$dir/cmake-static" -DCMAKE_PREFIX_PATH="$root" && cmake --build "$dir/cmake-static" --target plan
}
check "examples by CMake" by_cmake

for kind in shared static cmake; do
    runs() {
        "$dir/$kind/generate" "$model" "Tell me a story" | tee "$dir/out" && grep -q '\[[0-9]* tokens, ' "$dir/out" || return 1
        printf 'Tell me a short story.\nAnd another one.\n' | "$dir/$kind/chat" "$model" | tee "$dir/out" && [ "$(wc -c <"$dir/out")" -gt 40 ] || return 1
        "$dir/$kind/classify" "$model" " Paris, zzzq" "The capital of France is" | tee "$dir/out" && [ "$(cut -f1 "$dir/out")" = " Paris" ] || return 1
        "$dir/$kind/plan" "$model" | tee "$dir/out" && grep -q '^opened' "$dir/out" || return 1
        "$dir/$kind/plan" "$model" 1; [ $? = 6 ] || return 1 # more than a megabyte is needed
        "$dir/$kind/generate" /nowhere; [ $? = 5 ]
    }
    check "examples run ($kind)" runs
done

# The program in docs/library.md.
documented() {
    awk '/^```c/ { on = 1; next } /^```/ { if (on) exit } on' "$src/docs/library.md" >"$dir/doc.c"
    $CC $flags "$dir/doc.c" $(pkg-config --cflags --libs linnet) -o "$dir/doc" || return 1
    "$dir/doc" "$model" | tee "$dir/out" && [ -s "$dir/out" ]
}
check "the program in docs/library.md" documented

if command -v "${CXX:-c++}" >/dev/null; then
    cpp() { ${CXX:-c++} -std=c++17 -Wall -Wextra -Wpedantic -Wconversion -Wold-style-cast $werror "$src/tests/install/program.cpp" $(pkg-config --cflags --libs linnet) -o "$dir/cpp" && "$dir/cpp" "$model"; }
    check "C++17" cpp
else
    echo "SKIP: no C++ compiler: the header is not tried from C++"
fi
check "the installed command" "$root/bin/linnet" run "$model" "Hello" -n 3 </dev/null
finish
