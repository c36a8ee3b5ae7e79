# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts beside it: packages of this system, and plain messages. Source it.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '== %s\n' "$*"; }
fail() {  # fail EXIT_CODE TEXT
  printf 'error: %s\n' "$2" >&2
  exit "$1"
}

# The list for this system, or Debian 12's with a warning: the names rarely differ.
package_list() {
  local name=unknown
  if [[ -r /etc/os-release ]]; then
    name=$(. /etc/os-release && printf '%s%s' "${ID:-unknown}" "${VERSION_ID:-}")
  fi
  if [[ -r "$root/packages/$name.txt" ]]; then
    printf '%s\n' "$root/packages/$name.txt"
  else
    printf 'note: no package list for %s; using that of Debian 12\n' "$name" >&2
    printf '%s\n' "$root/packages/debian12.txt"
  fi
}

# packages_of SECTION...: the package names of [build], [test].
packages_of() {
  local list section
  list=$(package_list)
  for section in "$@"; do
    awk -v want="[$section]" '/^\[/ { on = ($0 == want); next } on && !/^#/ && NF { print $1 }' "$list"
  done
}

# missing_packages SECTION...: those that dpkg does not show as installed.
missing_packages() {
  local package
  command -v dpkg-query >/dev/null || fail 4 \
    "this system has no dpkg; install what packages/debian12.txt names by other means, then use --no-install"
  for package in $(packages_of "$@"); do
    if ! dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$'; then
      printf '%s\n' "$package"
    fi
  done
}

# install_packages SECTION...: installs what is missing, as root or with sudo.
install_packages() {
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  if (( ${#missing[@]} == 0 )); then
    say "all packages of $(basename "$(package_list)") are installed"
    return
  fi
  if (( $(id -u) != 0 )); then
    command -v sudo >/dev/null || fail 4 \
      "packages are missing and there is no sudo; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || fail 4 "apt-get update failed; is there a network?"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail 4 "apt-get install failed for: ${missing[*]}"
}

# python_tools FOLDER: a venv with packages/python.txt, made where there is none. RETURNS 1 where pip cannot make it.
python_tools() {
  local wanted python=/usr/bin/python3
  [[ -x $python ]] || python=python3
  wanted=$(cksum <"$root/packages/python.txt")
  if [[ -r $1/made-of && $(<"$1/made-of") == "$wanted" ]]; then return; fi
  rm -rf "$1"
  "$python" -m venv "$1" >/dev/null &&
    timeout 120 "$1/bin/python" -m pip install -q --disable-pip-version-check -r "$root/packages/python.txt" >/dev/null &&
    printf '%s\n' "$wanted" >"$1/made-of"
}

have() { command -v "$1" >/dev/null 2>&1; }
