#!/bin/sh
# Runs the container image's command in a container of buildah's, with the image's own user and no network.
# usage: tests/packages/image.sh IMAGE.tar      Needs root and buildah.
set -eu
image=$1
if [ "$(id -u)" != 0 ] || ! command -v buildah >/dev/null; then
    echo "SKIP: not root, or no buildah (Debian: apt-get install buildah): the image is NOT tried"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah="buildah --root $work/storage --runroot $work/run"
container=$($buildah from "oci-archive:$image")
$buildah inspect --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' "$container" | grep -q '^\[/bin/linnet\] 65534:65534$'
$buildah run "$container" /bin/linnet run tiny "Tell me a short story." -n 20 --temp 0 >"$work/story" 2>"$work/log" || { cat "$work/log"; exit 1; }
cat "$work/story"
[ "$(wc -w <"$work/story")" -ge 10 ]
echo "[  PASSED  ] 1 test(s)."
