#!/bin/sh
# Puts the command, its manual pages, completions and licences into a folder, as they are installed.
# usage: stage.sh BINARY FOLDER
set -eu
binary=$1
folder=$2
root=$(cd "$(dirname "$0")/.." && pwd)

install -D -m 755 "$binary" "$folder/usr/bin/tenure"

man="$folder/usr/share/man/man1"
mkdir -p "$man"
"$binary" man >"$man/tenure.1"
for subcommand in run elect acquire renew release ls show watch doctor; do
    "$binary" man "$subcommand" >"$man/tenure-$subcommand.1"
done
gzip -9 -n "$man"/*.1

completions() {
    mkdir -p "$(dirname "$folder/$2")"
    "$binary" completions "$1" >"$folder/$2"
}
completions bash usr/share/bash-completion/completions/tenure
completions zsh usr/share/zsh/vendor-completions/_tenure
completions fish usr/share/fish/vendor_completions.d/tenure.fish

doc="$folder/usr/share/doc/tenure"
mkdir -p "$doc"
install -m 644 "$root/README.md" "$root/CHANGELOG.md" "$root/docs/cli.md" "$root/docs/recipes.md" \
    "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$doc"
