#!/bin/sh
# Finds the dependencies of deps.txt, installs missing ones, and writes the flags for make.
#   setup.sh LEVEL [OUT.mk]        LEVEL is build, test, ci or extra; each includes the ones before it
#   setup.sh LEVEL-static[-CPU] [OUT.mk]   flags of static libraries; with CPU (aarch64) those of
#                                          Debian's packages for it, and its cross compiler
# Installs without asking when root, with CI=true, or where sudo needs no password; else asks once.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
table=$here/deps.txt
level=${1:-build}
out=${2:-}
cc=${CC:-cc}
suffix=
static=
case $level in
*-static*)
    static=--static
    cpu=${level#*-static}
    cpu=${cpu#-}
    level=${level%%-static*}
    case $cpu in
    '') ;;
    aarch64) foreign=arm64 ;;
    *) foreign=$cpu ;;
    esac
    if [ -n "$cpu" ]; then
        suffix=:$foreign
        export PKG_CONFIG_LIBDIR=/usr/lib/$cpu-linux-gnu/pkgconfig:/usr/share/pkgconfig
    fi
    ;;
esac
log=${TMPDIR:-/tmp}/depthscope-setup.$$.log
trap 'rm -f "$log"' EXIT

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# Homebrew keeps some libraries out of the default search path.
if [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null 2>&1; then
    for keg in ncurses openblas openssl; do
        PKG_CONFIG_PATH=$(brew --prefix)/opt/$keg/lib/pkgconfig:${PKG_CONFIG_PATH:-}
    done
    export PKG_CONFIG_PATH
fi

wanted() { # NEED: does the level asked for include this row?
    case $level:$1 in
    *:build | test:test | test:want | ci:test | ci:want | extra:*) return 0 ;;
    esac
    return 1
}

module() { # "a|b": prints the first that pkg-config knows
    for m in $(printf %s "$1" | tr '|' ' '); do
        if pkg-config --exists "$m" 2>/dev/null; then
            printf '%s\n' "$m"
            return 0
        fi
    done
    return 1
}

found() { # KIND NAME
    case $1 in
    tool) if [ "$2" = cc ]; then command -v "$cc"; else command -v "$2"; fi >/dev/null 2>&1 ;;
    pkg) module "$2" >/dev/null ;;
    py) python3 -c "import sys; sys.path.append('/usr/lib/python3/dist-packages'); import $2" >/dev/null 2>&1 ;;
    head) printf '#include <%s>\n' "$2" | "$cc" -E -x c - >/dev/null 2>&1 ;;
    *) die "$table: unknown kind '$1'" ;;
    esac
}

rows() { # a static build has no BLAS: it is loaded at run time
    sed -e 's/#.*//' -e '/^[[:space:]]*$/d' ${static:+-e '/openblas/d'} "$table"
    [ -z "$suffix" ] || echo "tool qemu-$cpu-static test qemu-user-static - - -"
}

manager() {
    for m in apt-get dnf pacman brew; do
        if command -v "$m" >/dev/null 2>&1; then
            printf '%s\n' "$m"
            return 0
        fi
    done
    return 1
}

missing() { # MANAGER: prints "name package need" of every requested row that is missing
    rows | while read -r kind name need apt dnf pacman brew; do
        wanted "$need" || continue
        found "$kind" "$name" && continue
        case $1 in
        dnf) package=$dnf ;;
        pacman) package=$pacman ;;
        brew) package=$brew ;;
        *) package=$apt ;;
        esac
        case $suffix:$kind:$name in
        :*) ;;
        *:tool:cc) package=gcc-$cpu-linux-gnu ;;
        *:head:*) package=libc6-dev-$foreign-cross ;;
        *:pkg:*) package=$package$suffix ;;
        esac
        printf '%s %s %s\n' "$name" "$package" "$need"
    done
}

become_root() { # prints the prefix that gives the package manager its rights, or fails
    if [ "$pm" = brew ] || [ "$(id -u)" = 0 ]; then
        return 0
    fi
    command -v sudo >/dev/null 2>&1 || return 1
    if sudo -n true 2>/dev/null; then
        echo 'sudo -n'
        return 0
    fi
    [ "${CI:-}" != true ] && [ -t 0 ] && [ -t 2 ] || return 1
    printf 'setup: install %s with sudo %s? [Y/n] ' "$packages" "$pm" >&2
    read -r answer
    case $answer in
    '' | y* | Y*) echo sudo ;;
    *) return 1 ;;
    esac
}

install() { # PACKAGE...
    case $pm in
    apt-get)
        [ -z "$suffix" ] || dpkg --print-foreign-architectures | grep -qx "$foreign" ||
            { $asroot dpkg --add-architecture "$foreign" && $asroot apt-get -q update; } || return 1
        opts='-y -q --no-install-recommends -o DPkg::Lock::Timeout=300'
        root_env="env DEBIAN_FRONTEND=noninteractive"
        if [ -n "$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -n 1)" ] &&
            $asroot $root_env apt-get install $opts "$@"; then
            return 0
        fi
        # A broken third-party package list must not stop the set-up: the install decides.
        $asroot $root_env apt-get -q update || :
        $asroot $root_env apt-get install $opts "$@"
        ;;
    dnf) $asroot dnf install -y "$@" ;;
    pacman) $asroot pacman -Sy --needed --noconfirm "$@" ;;
    brew) brew install "$@" ;;
    esac
}

# Optional test tools must not keep users without root from building and testing.
give_up() { # MESSAGE...: ends the set-up unless only wanted tools are absent
    if [ "$level" = ci ] || missing "$pm" | grep -qv ' want$'; then
        die "$@"
    fi
    say "$@"
    say "continuing without them: tests that use them will be skipped"
}

install_absent() {
    names=$(missing "$pm" | cut -d' ' -f1 | tr '\n' ' ')
    packages=$(missing "$pm" | cut -d' ' -f2 | grep -vx -e - | sort -u | tr '\n' ' ' || :)
    if [ "$pm" = none ]; then
        give_up "missing: ${names}- no apt-get, dnf, pacman or brew here; install them by hand"
    elif [ -z "$packages" ]; then
        give_up "missing: ${names}- $pm has no package for them; install them by hand"
    elif ! asroot=$(become_root); then
        give_up "missing: ${names}- as root run: $pm install $packages"
    else
        say "installing with $pm: $packages"
        # shellcheck disable=SC2086  # a list of package names
        if ! install $packages >"$log" 2>&1 </dev/null; then
            tail -n 15 "$log" >&2
            give_up "$pm could not install: $packages"
        fi
        names=$(missing "$pm" | cut -d' ' -f1 | tr '\n' ' ')
        [ -z "$names" ] || give_up "still missing after the install: $names"
    fi
}

pm=$(manager) || pm=none
[ -z "$(missing "$pm")" ] || install_absent

[ -n "$out" ] || exit 0
blas=
[ -n "$static" ] || blas=$(module 'openblas|cblas')
modules=$(rows | while read -r kind name need rest; do
    if [ "$kind" = pkg ] && [ "$need" = build ] && [ "$name" != 'openblas|cblas' ]; then
        module "$name"
    fi
done | tr '\n' ' ')
mkdir -p "$(dirname "$out")"
{
    echo "# Written by tests/setup/setup.sh $level; delete it to look again."
    # -isystem: third-party headers are exempt from this project's warnings.
    # shellcheck disable=SC2086
    echo "DEP_CFLAGS := $(pkg-config --cflags $modules | sed -e "s/-I/-isystem /g" -e "s/-D_[A-Z_]*SOURCE[=0-9]*//g") -DNCURSES_WIDECHAR=1"
    # shellcheck disable=SC2086
    echo "DEP_LIBS := $(pkg-config $static --libs $modules)"
    if [ -n "$blas" ]; then
        echo "BLAS_CFLAGS := $(pkg-config --cflags "$blas" | sed 's/-I/-isystem /g')"
        echo "BLAS_LIBS := $(pkg-config --libs "$blas")"
    fi
    if pkg-config --exists check; then
        echo "CHECK_CFLAGS := $(pkg-config --cflags check | sed 's/-I/-isystem /g')"
        echo "CHECK_LIBS := $(pkg-config $static --libs check)"
    fi
} >"$out.tmp"
mv "$out.tmp" "$out"
