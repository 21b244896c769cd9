#!/usr/bin/env bash
# Debian's chromium, its driver and pdftotext, for tests/browser: installs what is missing where apt-get may. Where it may not, this
# says so and is no failure; those tests are then skipped, and counted.
set -euo pipefail
if command -v chromium > /dev/null && command -v chromedriver > /dev/null && command -v pdftotext > /dev/null; then
  exit
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
  echo "tests/browser is skipped: it needs chromium, chromedriver and pdftotext on PATH" >&2
  exit
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core poppler-utils > /dev/null
