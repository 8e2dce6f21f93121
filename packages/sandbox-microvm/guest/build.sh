#!/bin/sh
# Builds the guest agent, statically and reproducibly: the same compiler and libc give the same bytes.
# The published binary is made with Debian 12's musl-tools (gcc 12.2, musl 1.2.3); test/guest-agent.test.ts checks that.
set -eu
cd "$(dirname "$0")"
out=${1:-../assets/guest-agent-x86_64}
export SOURCE_DATE_EPOCH=0 LC_ALL=C
mkdir -p "$(dirname "$out")"
${CC:-musl-gcc} -std=gnu11 -static -Os -Wall -Wextra -Werror -fno-ident -ffunction-sections -fdata-sections \
  -fno-asynchronous-unwind-tables -Wl,--gc-sections,--build-id=none,-z,noseparate-code -s -o "$out" \
  main.c channel.c connection.c exec.c file.c network.c order.c system.c
