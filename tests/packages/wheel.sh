#!/bin/sh
# Installs the wheel in a new environment of each Python, and tries it: the command, the module's cases, and a removal that leaves nothing.
# usage: tests/packages/wheel.sh ROOT WHEEL [PYTHON...]      PYTHON: python3, and every python3.9 or later on PATH or in ~/.pyenv
set -eu
root=$(cd "$1" && pwd) wheel=$(realpath "$2")
shift 2
[ $# -gt 0 ] || set -- python3 $(for minor in $(seq 9 20); do command -v "python3.$minor" || true; done) $(ls -d "$HOME"/.pyenv/versions/3.*/bin/python3 2>/dev/null || true)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/python_package" "$work/package" "$work/abi.c"
cc -I"$root/include" -o "$work/abi" "$work/abi.c"
"$work/abi" >"$work/abi.txt"
tried=" " passed=0
for python; do
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3], sys.version_info >= (3, 9), sys.prefix)' 2>/dev/null) || continue
    case $version in *" False "*) continue ;; esac
    case $tried in *" ${version%% *}:"*) continue ;; esac
    tried="$tried${version%% *}: "
    if ! "$python" -m venv "$work/venv" >"$work/log" 2>&1; then
        echo "SKIP: $python cannot make environments (Debian: apt-get install python3-venv)"
        continue
    fi
    find "$work/venv" -not -name '*.pyc' -not -name __pycache__ | sort >"$work/before"
    "$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel"
    command=$(cd "$work" && "$work/venv/bin/python" -c 'import linnet, pathlib; print(pathlib.Path(linnet.__file__).parent / "bin/linnet")')
    if LINNET_COMMAND=$work/venv/bin/linnet "$work/venv/bin/linnet" --version 2>"$work/log" || ! grep -q 'is this script' "$work/log"; then
        echo "wheel: $version: a script that names itself was not rejected"
        exit 1
    fi
    cd "$work"
    "$work/venv/bin/linnet" run tiny "Tell me a short story." -n 20 --temp 0 2>/dev/null >"$work/story"
    [ "$(wc -w <"$work/story")" -ge 10 ] || { echo "wheel: $version: expected a story of 20 tokens, found: $(cat "$work/story")"; exit 1; }
    PYTHONDONTWRITEBYTECODE=1 LINNET_ABI=$work/abi.txt LINNET_COMMAND=$command "$work/venv/bin/python" "$root/tests/python/module_cases.py" 2>"$work/log" || { cat "$work/log"; exit 1; }
    for plugin in "$(dirname "$wheel")"/linnet_cuda-*.whl; do # if it was built: the command and the library find it
        [ -e "$plugin" ] || continue
        "$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$plugin"
        "$work/venv/bin/linnet" doctor >"$work/doctor"
        if grep -q 'found neither' "$work/doctor"; then echo "wheel: $version: expected the device cuda, found: $(cat "$work/doctor")"; exit 1; fi
        "$work/venv/bin/pip" uninstall -q -y linnet-cuda
    done
    "$work/venv/bin/pip" uninstall -q -y linnet
    find "$work/venv" -not -name '*.pyc' -not -name __pycache__ | sort >"$work/after"
    diff "$work/before" "$work/after" || { echo "wheel: $version: the files above are left after the removal"; exit 1; }
    echo "wheel: Python ${version%% *}: $(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$work/log") cases passed$(sed -n 's/^OK\( (.*)\)/\1/p' "$work/log")"
    passed=$((passed + 1))
    rm -rf "$work/venv"
done
[ "$passed" -gt 0 ] || { echo "SKIP: no Python 3.9 or later that can make environments: the wheel is NOT tested"; exit 77; }
echo "[  PASSED  ] $passed test(s)."
