#!/bin/sh
# Runs the static command in a system that has busybox and nothing else: no C library, no /usr, no terminal descriptions.
# usage: tests/packages/static.sh ARCHIVE      Needs root and busybox (Debian: busybox-static).
# A command for another processor runs by qemu (Debian: qemu-user-static), without the server, whose filter of system calls qemu does not emulate.
set -eu
PATH=$PATH:/usr/sbin:/sbin
archive=$1
busybox=$(command -v busybox || true)
if [ "$(id -u)" != 0 ] || [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then
    echo "SKIP: not root, or no static busybox (Debian: apt-get install busybox-static): the static command is NOT tried"
    exit 77
fi
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/proc" "$root/tmp" "$root/dev"
cp "$busybox" "$root/bin/busybox"
for tool in sh wc cat sleep wget grep kill tee; do ln -s busybox "$root/bin/$tool"; done
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 444 "$root/dev/urandom" c 1 9
mount -t proc proc "$root/proc"
tar xf "$archive" -C "$root" --strip-components=1
[ "$(ls "$root/bin/linnet")" ]
machine=$(basename "$archive" .tar.xz | sed 's/.*-linux-//') emulated=
if [ "$machine" != "$(uname -m)" ]; then
    emulated=yes qemu=$(command -v "qemu-$machine-static" || true)
    [ -n "$qemu" ] || { echo "SKIP: no qemu-$machine-static (Debian: apt-get install qemu-user-static): the static command for $machine is NOT tried"; exit 77; }
    cp "$qemu" "$root/bin/qemu"
    mkdir "$root/machine" && mv "$root/bin/linnet" "$root/machine/linnet"
    printf '#!/bin/sh\nexec /bin/qemu /machine/linnet "$@"\n' >"$root/bin/linnet"
    chmod +x "$root/bin/linnet"
fi
chroot "$root" /bin/busybox env -i PATH=/bin HOME=/tmp EMULATED=$emulated sh -euc '
    linnet --version
    linnet run tiny "Tell me a short story." -n 40 --temp 0 >/tmp/story
    cat /tmp/story
    [ "$(wc -w </tmp/story)" -ge 20 ]
    linnet doctor | tee /tmp/doctor
    printf "{\"text\": \"One day a dog ran home. It was late, and the dog was glad.\"}\n" >/tmp/data.jsonl
    linnet train tiny --data /tmp/data.jsonl -o /tmp/adapter --steps 2 >/dev/null 2>&1
    linnet run tiny --adapter /tmp/adapter "Hello" -n 4 >/dev/null
    [ -z "$EMULATED" ] || exit 0
    linnet serve tiny --port 18431 >/tmp/log 2>&1 &
    server=$!
    for i in 1 2 3 4 5 6 7 8 9 10; do wget -q -O /tmp/health http://127.0.0.1:18431/health 2>/dev/null && break; sleep 1; done
    wget -q -O /tmp/answer --header "Content-Type: application/json" --post-data "{\"prompt\": \"Once\", \"max_tokens\": 8}" http://127.0.0.1:18431/v1/completions || { cat /tmp/log; exit 1; }
    grep -q text_completion /tmp/answer
    kill $server
    wait $server || { cat /tmp/log; exit 1; }'
echo "[  PASSED  ] 1 test(s)."
