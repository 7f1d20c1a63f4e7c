#!/bin/sh
# Checks that the packages that the build needs are installed. On Debian and its derivatives it prints and installs missing ones.
# usage: tools/setup.sh [--check]      --check only prints the missing packages (exit 1 if there are any)
# When nothing is missing, it changes nothing and needs no root rights.
set -eu

missing=
need() { # need PACKAGE TEST...: PACKAGE is missing when TEST fails
    package=$1; shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
have() { command -v "$1"; }
has_cc() { command -v cc || command -v gcc || command -v clang; }
has_cxx() { command -v c++ || command -v g++ || command -v clang++; } # for the test of the header only
has_headers() { echo '#include <stdio.h>' | "${CC:-cc}" -E - ; }
library() { pkg-config --exists "$1"; }

need gcc has_cc
need libc6-dev has_headers
need g++ has_cxx
need cmake have cmake
need ninja-build have ninja
need pkg-config have pkg-config
need libjansson-dev library jansson
need libpcre2-dev library libpcre2-8
need libutf8proc-dev library libutf8proc
need libedit-dev library libedit
need libevent-dev library libevent_core
need libcmocka-dev library cmocka

[ -n "$missing" ] || exit 0
if [ "${1:-}" = --check ]; then
    echo "linnet: not installed yet:$missing" >&2
    echo "linnet: 'make setup' installs it (Debian, Ubuntu); elsewhere install the same libraries by hand" >&2
    exit 1
fi

root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "linnet: not installed yet:$missing" >&2
        echo "linnet: there is no sudo here; as root, run: apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    root=sudo
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "linnet: not installed yet:$missing (Debian's names)" >&2
    echo "linnet: with Homebrew: brew install cmake ninja pkg-config jansson pcre2 utf8proc libedit libevent cmocka" >&2
    echo "linnet: there is no apt-get here; install the same tools and libraries with this system's packages, then try again" >&2
    exit 1
fi

apt() { # the package lock may be held for a moment by the system's own updates
    if [ -n "$root" ]; then sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"
    else DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; fi
}
echo "linnet: installing from Debian${root:+ with sudo}:$missing"
# shellcheck disable=SC2086 # a list of names
if ! apt install --no-install-recommends $missing; then
    echo "linnet: trying again with a fresh package list"
    apt update || { echo "linnet: apt-get update failed; is there a network?" >&2; exit 1; }
    # shellcheck disable=SC2086
    apt install --no-install-recommends $missing || { echo "linnet: could not install:$missing" >&2; exit 1; }
fi
