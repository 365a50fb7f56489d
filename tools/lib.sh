# tools/lib.sh -- shared by the tools: where the project is, installing packages, building.
# Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf '== %s\n' "$*" >&2; }

# install_packages FILE: installs what the list names and this system lacks.
install_packages() {
  command -v dpkg-query >/dev/null || { say "not a Debian system: install what $1 lists by hand"; return; }
  local missing=() line choice have
  while read -r line; do
    case $line in ''|'#'*) continue ;; esac
    have=
    for choice in ${line//|/ }; do
      if dpkg-query -W -f '${Status}\n' "$choice" 2>/dev/null | grep -q 'ok installed'; then have=1; break; fi
    done
    [ -n "$have" ] || missing+=("$line")
  done <"$1"
  [ ${#missing[@]} -gt 0 ] || return 0
  local sudo=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "missing packages, and no root to install them: ${missing[*]}"; exit 1; }
    sudo=sudo
  fi
  $sudo apt-get update -q >&2
  local wanted=()
  for line in "${missing[@]}"; do
    for choice in ${line//|/ }; do
      if apt-cache show "$choice" >/dev/null 2>&1; then wanted+=("$choice"); break; fi
    done
  done
  say "installing: ${wanted[*]}"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${wanted[@]}" >&2
}

# build PRESET [cmake flags ..] -- [targets ..]
build() {
  local preset=$1; shift
  local flags=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do flags+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  cmake --preset "$preset" "${flags[@]}" >"/tmp/colauto-configure-$$.log" 2>&1 || {
    cat "/tmp/colauto-configure-$$.log" >&2; rm -f "/tmp/colauto-configure-$$.log"; return 1; }
  rm -f "/tmp/colauto-configure-$$.log"
  if [ $# -gt 0 ]; then cmake --build --preset "$preset" --target "$@"; else cmake --build --preset "$preset"; fi
}
