#!/bin/sh
# Installs the program and its data, or removes what an earlier call installed; from the repository's root.
#   install.sh install PROGRAM
#   install.sh uninstall
# Environment: DESTDIR, put in front of every path; PREFIX; the folders DATADIR MANDIR BASHDIR ZSHDIR FISHDIR, below PREFIX if empty.
# DATADIR/installed.txt lists each file that was written ("f PATH") and each folder that was made ("d PATH").
set -eu
umask 022
export LC_ALL=C

: "${DATADIR:=$PREFIX/share/depthscope}" "${MANDIR:=$PREFIX/share/man}" "${BASHDIR:=$PREFIX/share/bash-completion/completions}" \
    "${ZSHDIR:=$PREFIX/share/zsh/site-functions}" "${FISHDIR:=$PREFIX/share/fish/vendor_completions.d}"
list=$DESTDIR$DATADIR/installed.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

folder() { # PATH: makes it, noting what was not there; DATADIR is the program's own
    case $1/ in "$DATADIR"/*) echo "d $1" >>"$work/new" ;; esac
    [ ! -d "$DESTDIR$1" ] || return 0
    case $1 in */*) [ -z "${1%/*}" ] || folder "${1%/*}" ;; esac
    mkdir "$DESTDIR$1"
    echo "d $1" >>"$work/new"
}

file() { # MODE FROM PATH: replaces it at once, so that a running program is never half written
    folder "${3%/*}"
    cp "$2" "$DESTDIR$3.new"
    chmod "$1" "$DESTDIR$3.new"
    mv -f "$DESTDIR$3.new" "$DESTDIR$3"
    echo "f $3" >>"$work/new"
}

printed() { # PATH WORD...: what the program prints
    to=$1
    shift
    "$program" "$@" >"$work/text"
    file 644 "$work/text" "$to"
}

remove() { # LIST: files, then folders from the inside; one that holds anything else stays
    sed -n 's/^f //p' "$1" | while IFS= read -r path; do rm -f "$DESTDIR$path"; done
    sed -n 's/^d //p' "$1" | sort -r | while IFS= read -r path; do rmdir "$DESTDIR$path" 2>/dev/null || :; done
}

case $1 in
install)
    program=$2
    : >"$work/new"
    [ -z "$DESTDIR" ] || mkdir -p "$DESTDIR"
    file 755 "$program" "$PREFIX/bin/depthscope"
    printed "$MANDIR/man1/depthscope.1" help man
    printed "$BASHDIR/depthscope" help bash
    printed "$ZSHDIR/_depthscope" help zsh
    printed "$FISHDIR/depthscope.fish" help fish
    # data/readme has the pictures of the repository's own pages
    find themes data -type f ! -path 'data/readme/*' ! -name '.*' | sort >"$work/data"
    while IFS= read -r path; do file 644 "$path" "$DATADIR/$path"; done <"$work/data"
    folder "$DATADIR"
    echo "f $DATADIR/installed.txt" >>"$work/new"
    if [ -f "$list" ]; then # of the version that is replaced: what it had more is removed, and folders that stay stay noted
        grep -vxF -f "$work/new" "$list" >"$work/old" || :
        remove "$work/old"
        sed -n 's/^d //p' "$work/old" | while IFS= read -r path; do [ ! -d "$DESTDIR$path" ] || echo "d $path"; done >>"$work/new"
    fi
    sort -u "$work/new" >"$list"
    chmod 644 "$list"
    echo "installed $(grep -c '^f ' "$list") files below $DESTDIR$PREFIX"
    ;;
uninstall)
    if [ -f "$list" ]; then
        cp "$list" "$work/old"
        remove "$work/old"
    else
        echo "uninstall: no $list: nothing was installed there, or by a version before 1.1.0 (make install, then uninstall)"
    fi
    ;;
esac
