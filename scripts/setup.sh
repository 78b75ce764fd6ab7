#!/usr/bin/env bash
# Installs what a build needs, on Debian 12 and Ubuntu 24.04. Does nothing when all of it is there.
set -euo pipefail
packages=(
  g++ cmake ninja-build ccache pkg-config git make python3 python3-pip python3-venv
  clang-format-14 clang-tidy-14
  libfmt-dev nlohmann-json3-dev libcli11-dev libonig-dev libutf8proc-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

echo "installing packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup: run this as root, or install: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
