#!/usr/bin/env bash
# Opens the pages that kvlab writes in headless Chromium: tests/browser/run.sh [SPEC ...]
# A spec is a file tests/browser/*.spec.mjs; left out, all are run. KVLAB names the binary (target/debug/kvlab), and
# SCREENSHOTS a folder for pictures of the pages. It installs what it needs: Debian's chromium, and playwright-core from npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export KVLAB="${KVLAB:-$root/target/debug/kvlab}"
[ -x "$KVLAB" ] || { echo "no kvlab at $KVLAB: build it, or name one in KVLAB" >&2; exit 2; }

# What is there is left alone: Debian's npm does not go with another Node.js.
missing=()
command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
command -v npm >/dev/null || missing+=(nodejs npm)
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
specs=()
for spec in "$@"; do specs+=("$(realpath "$spec")"); done
if [ ${#specs[@]} -eq 0 ]; then specs=("$here"/*.spec.mjs); fi

cd "$here"
# What is installed is what the lock file says, or it is installed again.
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/.installed
fi
ROOT="$root" node --test --test-reporter=spec "${specs[@]}"
