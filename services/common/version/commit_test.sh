#!/usr/bin/env bash
# commit_test.sh CMAKE SCRIPT: which commit WriteCommit.cmake names, and when it writes.
set -euo pipefail
cmake=$1 script=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree
mkdir -p "$tree/cmake"
printf '$Format:%%H$\n' >"$tree/cmake/archive-commit.txt"
write() { "$cmake" -DSOURCE="$tree" -DOUTPUT="$folder/commit.cc" "$@" -P "$script"; }
expect() { grep -qF "return \"$1\"" "$folder/commit.cc" || { echo "expected $1: $(cat "$folder/commit.cc")" >&2; exit 1; }; }
git_here() { git -C "$tree" -c user.name=test -c user.email=test@example.com "$@"; }

write
expect unknown
write -DCOMMIT=v1.2+abc
expect v1.2+abc
write '-DCOMMIT="; evil()'
expect unknown
echo 0123456789abcdef >"$tree/cmake/archive-commit.txt"
write
expect 0123456789abcdef

command -v git >/dev/null || exit 0
printf '$Format:%%H$\n' >"$tree/cmake/archive-commit.txt"
git_here init -q
git_here add .
git_here commit -q -m first
head=$(git_here rev-parse --short=12 HEAD)
write
expect "$head"
touch -d '2001-01-01' "$folder/commit.cc"
write
[ "$(stat -c %Y "$folder/commit.cc")" -lt 1000000000 ] || { echo "written again though nothing changed" >&2; exit 1; }
echo more >>"$tree/cmake/archive-commit.txt"
write
expect "$head-dirty"
