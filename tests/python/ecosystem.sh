#!/bin/sh
# Runs ecosystem.py on the library of the build, in a Python that has lm-eval[api], transformers and llm.
# usage: tests/python/ecosystem.sh ROOT BUILD [PYTHON]      without PYTHON they are installed from PyPI in BUILD/python
set -eu
root=$(cd "$1" && pwd) build=$(cd "$2" && pwd) python=${3:-}
if [ -z "$python" ]; then
    python=$build/python/bin/python
    "$python" -c 'import lm_eval, transformers, llm, tenacity' 2>/dev/null || {
        python3 -m venv "$build/python" && "$build/python/bin/pip" -q --disable-pip-version-check install 'lm-eval[api]' transformers llm
    } >"$build/python.log" 2>&1 || {
        tail -n 3 "$build/python.log"
        echo "SKIP: lm-eval and llm cannot be installed from PyPI here ($build/python.log): they are NOT run on the Python module"
        exit 77
    }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/python_package" "$work"
PYTHONPATH=$work LINNET_LIBRARY=$build/liblinnet.so.0 LINNET_COMMAND=$build/linnet HF_HUB_OFFLINE=1 \
    "$python" "$root/tests/python/ecosystem.py" "$root/models/tiny"
