#!/bin/sh
# What the command says if the MLX device lacks its plug-in, the library of MLX, or finds another version of it: the reason, and the line that
# installs what is missing. Stubs take the place of MLX's library.
# usage: tests/mlx/wheel.sh ROOT BUILD
set -eu
root=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
plugin=$build/liblinnet-mlx.so
wanted=$(sed -n 's/^set(LN_MLX_VERSION \(.*\))$/\1/p' "$root/cmake/mlx.cmake")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=$work/packages passed=0
mkdir -p "$packages/mlx/lib"
cp "$build/linnet" "$work/"

# rejected TEXT...: `linnet run --device mlx` ends with the exit code of a missing device, and its message has each text.
rejected() {
    code=0
    LD_LIBRARY_PATH=$packages/mlx/lib "$work/linnet" run --device mlx "$root/models/tiny" Once -n 2 >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 7 ] || { echo "wheel: expected exit code 7, found $code: $(cat "$work/err")"; exit 1; }
    for text; do
        grep -qF -- "$text" "$work/err" || { echo "wheel: the message lacks '$text': $(cat "$work/err")"; exit 1; }
    done
    passed=$((passed + 1))
}

[ -e /usr/local/lib/liblinnet-mlx.so ] || rejected "found neither $work/liblinnet-mlx.so" "pip install mlx-cpu==$wanted"
if ! [ -e "$plugin" ]; then
    echo "SKIP: $plugin was not built (tools/mlx_wheel $2, then make): versions of MLX are NOT tested"
    exit 77
fi

# The plug-in with a path to its library that has the same length and does not exist.
LC_ALL=C sed 's|/mlx/lib\([:\x00]\)|/mlx/l-b\1|' "$plugin" >"$work/liblinnet-mlx.so"
rejected "libmlx.so: cannot open shared object file" "pip install mlx-cpu==$wanted"

stub() { cc -shared -fPIC -w -o "$packages/mlx/lib/libmlx.so" -x c -; }
echo 'int nothing;' | stub
rejected "undefined symbol: _Z" "pip install mlx-cpu==$wanted"

{
    echo 'const char *_ZN3mlx4core7versionEv(void) { return "0.31.9"; }'
    nm -u "$work/liblinnet-mlx.so" | sed -n 's/^ *U \(_Z[A-Za-z0-9_]*3mlx[A-Za-z0-9_]*\)$/char \1[256];/p' | grep -v 7versionEv
} | stub
rejected "$packages/mlx/lib/libmlx.so is MLX 0.31.9, expected $wanted" "pip install --upgrade --target $packages mlx-cpu==$wanted"
"$work/linnet" doctor >"$work/out" 2>&1
! grep -q '^devices .*mlx' "$work/out" || { echo "wheel: doctor lists a device that cannot be opened"; exit 1; }
echo "[  PASSED  ] $passed test(s)."
