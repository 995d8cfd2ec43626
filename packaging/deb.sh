#!/bin/sh
# Makes tenure_VERSION_ARCHITECTURE.deb, with dpkg-deb alone.
# usage: deb.sh BINARY TAG ARCHITECTURE OUTPUT-FOLDER
set -eu
binary=$1
version=${2#v}
architecture=$3
output=$4
here=$(cd "$(dirname "$0")" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# The folder becomes the file system's root, so every user must be able to read it.
chmod 755 "$stage"

"$here/stage.sh" "$binary" "$stage"
mkdir "$stage/DEBIAN"
# The release is built with the C library of Ubuntu 22.04.
cat >"$stage/DEBIAN/control" <<END
Package: tenure
Version: $version
Architecture: $architecture
Maintainer: The Tenure authors <noreply@users.noreply.github.com>
Depends: libc6 (>= 2.34), libgcc-s1
Suggests: redis-server | valkey-server
Section: admin
Priority: optional
Homepage: https://github.com/tenure-lock/tenure
Description: run any command under a distributed lock
 Runs a command while holding a lock that is shared by the processes of one
 machine, or by all machines that reach a Redis or Valkey server. The lock is
 renewed while the command runs; if it is lost, the command is ended in time.
END
mkdir -p "$output"
dpkg-deb --build --root-owner-group "$stage" "$output/tenure_${version}_$architecture.deb"
