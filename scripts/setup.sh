#!/usr/bin/env bash
# Installs what a build needs, on Debian 12, 13 and Ubuntu 24.04: scripts/setup.sh [build|lint|machines|media|list]
#   build   the compiler, the libraries, the tests' frameworks (default)
#   lint    these and the tools of scripts/lint.sh
#   machines  these and what jobs of several processes need
#   media   these and what MP4, WebM, JPEG and WebP files need
#   list    only prints the packages' names
# Does nothing when all of it is there; elsewhere says what is needed (docs/guide/install.md).
set -euo pipefail
packages=(
  g++ cmake ninja-build ccache pkg-config git make python3 python3-pip python3-venv
  libfmt-dev nlohmann-json3-dev libcli11-dev libonig-dev libpng-dev libutf8proc-dev libedit-dev
  libboost-dev prometheus-cpp-dev libtomlplusplus-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
what=${1:-build}
case $what in
  build) ;;
  lint) packages+=(clang-format-14 clang-tidy-14) ;;
  machines) packages+=(libucx-dev libpmix-dev openmpi-bin ucx-utils) ;;
  media) packages+=(libavformat-dev libjpeg-dev libwebp-dev ffmpeg) ;;
  list)
    echo "${packages[*]}"
    exit 0
    ;;
  *)
    echo "setup: '$what': wanted build, lint, machines, media or list" >&2
    exit 2
    ;;
esac

if ! command -v apt-get dpkg-query >/dev/null; then
  for tool in c++ cmake ninja pkg-config python3; do
    command -v "$tool" >/dev/null && continue
    echo "setup: no $tool, and no apt-get to install it: Braid needs what Debian calls ${packages[*]}" >&2
    exit 1
  done
  exit 0 # CMake looks for the libraries
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup: not root and no sudo: let root run 'apt-get install ${missing[*]}'" \
      "(or go on with SETUP=no if all that is here in another way)" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "installing packages: ${missing[*]}"
# apt-get of root alone sees the environment of this shell; sudo drops DEBIAN_FRONTEND and proxies.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive)
for name in http_proxy https_proxy no_proxy; do
  [ -n "${!name:-}" ] && apt+=("$name=${!name}")
done
"${apt[@]}" apt-get update -q
"${apt[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
