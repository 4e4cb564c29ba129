#!/usr/bin/env bash
# Fetches the Jargon File (public domain, 1.7 MB) from Debian's package jargon-text into models/.
set -euo pipefail
cd "$(dirname "$0")/.."
text=models/jargon.txt
if [ -e "$text" ]; then
    echo "$text is there"
    exit 0
fi
command -v dpkg-deb >/dev/null || { echo "this needs Debian's dpkg-deb and apt-get" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq jargon-text 2>/dev/null)
dpkg-deb -x "$work"/jargon-text_*.deb "$work/files"
mkdir -p models
zcat "$work/files/usr/share/doc/jargon-text/jargon.txt.gz" > "$work/jargon.txt"
mv "$work/jargon.txt" "$text"
echo "$text"
