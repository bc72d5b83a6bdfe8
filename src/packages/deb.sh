#!/bin/sh
# Packs a program as a Debian package, from the repository's root: all control data is written here.
#   deb.sh PROGRAM DIRECTORY     writes DIRECTORY/depthscope_VERSION_ARCH.deb, and checks it where lintian is installed
# Environment: DEBFULLNAME, DEBEMAIL (the maintainer); SOURCE_DATE_EPOCH (else the day of the release), so that equal inputs give
# equal bytes; LINTIAN (the command of the check; empty: none).
set -eu
umask 022
export LC_ALL=C TZ=UTC

program=$1 directory=$2
notes=data/reference/RELEASES.md
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture strip; do
    command -v $tool >/dev/null 2>&1 || { echo "deb: missing $tool: install dpkg-dev and binutils"; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree doc=$work/tree/usr/share/doc/depthscope
version=$("$program" --version | sed 's/^depthscope //')
day=$(sed -n "s/^## $version (\(.*\))\$/\1/p" $notes)
[ "$day" ] || { echo "deb: $notes has no heading \"## $version (YYYY-MM-DD)\""; exit 1; }
: "${SOURCE_DATE_EPOCH:=$(date -d "$day 12:00" +%s)}"
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-depthscope maintainers} <${DEBEMAIL:-maintainers@depthscope.invalid}>"
arch=$(dpkg-architecture -qDEB_HOST_ARCH)

# ---- files ----

mkdir "$tree"
DESTDIR=$tree PREFIX=/usr DATADIR="" MANDIR="" BASHDIR="" FISHDIR="" ZSHDIR=/usr/share/zsh/vendor-completions \
    sh src/packages/install.sh install "$program" >"$work/log"
rm "$tree/usr/share/depthscope/installed.txt" # dpkg has its own list
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree/usr/bin/depthscope"
gzip -9n "$tree/usr/share/man/man1/depthscope.1"
mkdir -p "$doc" "$tree/DEBIAN"
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    echo 'Upstream-Name: depthscope'
    printf '\nFiles: *\n'
    sed -n 's/^Copyright (c) /Copyright: /p' LICENSE
    echo 'License: Expat'
    sed -e '1,/^Copyright/d' LICENSE | sed -e '1{/^$/d;}' -e 's/^$/./' -e 's/^/ /'
} >"$doc/copyright"

# A changelog's entry for each heading of the release notes.
awk '/^## / { day = $3; gsub(/[()]/, "", day); print "V", $2, day; next }
    /^- / { sub(/^- /, ""); print "*", $0; next }
    /^  / { sub(/^ +/, ""); print "+", $0 }' $notes | sed -e 's/\[\([^]]*\)\]([^)]*)/\1/g' -e 's/`//g' | {
    item= end=
    flush() { # one item, folded
        [ -z "$item" ] || printf '%s\n' "$item" | fold -s -w 72 | sed -e 's/ *$//' -e '1s/^/  * /' -e '2,$s/^/    /'
        item=
    }
    while read -r kind text; do
        case $kind in
        '*') flush; item=$text ;;
        +) item="$item $text" ;;
        V)
            flush
            [ -z "$end" ] || printf '\n%s\n\n' "$end"
            printf 'depthscope (%s) unstable; urgency=medium\n\n' "${text% *}"
            end=" -- $maintainer  $(date -d "${text#* } 12:00" '+%a, %d %b %Y %H:%M:%S +0000')"
            ;;
        esac
    done
    flush
    printf '\n%s\n' "$end"
} | gzip -9n >"$doc/changelog.gz"

# ---- control data ----

mkdir "$work/debian"
printf 'Source: depthscope\n\nPackage: depthscope\nArchitecture: %s\n' "$arch" >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e"$tree/usr/bin/depthscope" 2>"$work/log") || { cat "$work/log"; exit 1; }
depends=$(printf '%s\n' "$depends" | sed -n 's/^shlibs:Depends=//p')
cat >"$tree/DEBIAN/control" <<EOF
Package: depthscope
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size "$tree/usr" | cut -f1)
Depends: $depends
Recommends: openssh-client
Suggests: libopenblas0, curl
Section: science
Priority: optional
Description: terminal workbench for adaptive-depth transformers
 Models of adaptive depth spend a different amount of compute on every token.
 depthscope trains or loads such a model, shows live what every token costs in
 every layer, steps through what a router decided and why, and draws figures
 from logged data. Logs of other programs open like its own, also over ssh.
EOF
(cd "$tree" && find usr -type f | sort | xargs md5sum >DEBIAN/md5sums)
chmod 644 "$tree/DEBIAN/control" "$tree/DEBIAN/md5sums"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$directory"
deb=$directory/depthscope_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$deb" >"$work/log" || { cat "$work/log"; exit 1; }
echo "$deb"
: "${LINTIAN=lintian}"
if [ -z "$LINTIAN" ]; then
    :
elif command -v "$LINTIAN" >/dev/null 2>&1; then
    "$LINTIAN" --allow-root --fail-on error,warning "$deb"
else
    echo 'deb: lintian is not installed: the package was not checked'
fi
