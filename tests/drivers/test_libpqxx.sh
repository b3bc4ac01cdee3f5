#!/usr/bin/env bash
# libpqxx: builds libpqxx.cpp with the worker loop of README.md in it, and runs it.
set -euo pipefail

if ! command -v pkg-config > /dev/null || ! pkg-config --exists libpqxx; then
  echo "libpqxx is not to be had"
  exit 77
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

sed -n '/^```cpp$/,/^```$/p' "$here/../../README.md" | sed '/^```/d' > "$build/readme_loop.hpp"
[ -s "$build/readme_loop.hpp" ] || { echo "README.md has no block of cpp"; exit 1; }
standard=c++17
if [ "$(pkg-config --modversion libpqxx | cut -d. -f1)" -ge 8 ]; then standard=c++20; fi
read -r -a flags < <(pkg-config --cflags --libs libpqxx)
"${CXX:-g++}" -std=$standard -Wall -Wno-deprecated-declarations -I "$build" -o "$build/libpqxx" "$here/libpqxx.cpp" "${flags[@]}"
"$build/libpqxx"
