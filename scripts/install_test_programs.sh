#!/usr/bin/env bash
# Debian's chromium, its driver and pdftotext for tests/browser, and bubblewrap for executed answers: installs what is missing where
# apt-get may. Where it may not, this says so and is no failure; those tests are then skipped, and counted.
set -euo pipefail
programs=(chromium chromedriver pdftotext bwrap)
if command -v "${programs[@]}" > /dev/null && [ "$(command -v "${programs[@]}" | wc -l)" = "${#programs[@]}" ]; then
  exit
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
  echo "tests of pages and of executed answers are skipped where one is not on PATH: ${programs[*]}" >&2
  exit
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
  chromium chromium-driver fonts-dejavu-core poppler-utils bubblewrap > /dev/null
