#!/bin/sh
# Makes tenure-VERSION-TARGET.tar.gz.
# usage: archive.sh BINARY TAG TARGET OUTPUT-FOLDER
set -eu
binary=$1
name=tenure-${2#v}-$3
output=$4
here=$(cd "$(dirname "$0")" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

"$here/stage.sh" "$binary" "$stage/$name"
mkdir -p "$output"
tar --create --gzip --file "$output/$name.tar.gz" --owner=0 --group=0 --sort=name -C "$stage" "$name"
echo "$output/$name.tar.gz"
