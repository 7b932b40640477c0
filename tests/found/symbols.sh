#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# symbols.sh LIBRARY - checks that libstag-found.so exports exactly these symbols, each without a version and each, but for its own, one of the
# C library.
set -euo pipefail

lib=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

printf '%s\n' >"$tmp/want" \
	__fxstat __fxstat64 __fxstatat __fxstatat64 __lxstat __lxstat64 __open64_2 __open_2 __openat64_2 __openat_2 __readlink_chk __readlinkat_chk \
	__realpath_chk __xstat __xstat64 access canonicalize_file_name closedir dirfd dlopen eaccess euidaccess faccessat fdopendir fopen fopen64 fstat fstat64 \
	fstatat fstatat64 getxattr lgetxattr listxattr llistxattr lstat lstat64 open open64 openat openat64 opendir readdir readdir64 readlink readlinkat realpath \
	rewinddir seekdir stag_found_next_dlopen stat stat64 statx telldir

# A version would keep references of programs under the C library's versions from being bound to the symbol.
nm -D --defined-only --with-symbol-versions "$lib" | awk '{ print $3 }' | LC_ALL=C sort >"$tmp/have"
LC_ALL=C sort -o "$tmp/want" "$tmp/want"
diff "$tmp/want" "$tmp/have"

libc=$(ldd "$lib" | awk '$1 ~ /^libc\.so/ { print $3 }')
nm -D --defined-only "$libc" | awk '{ sub("@.*", "", $3); print $3 }' | LC_ALL=C sort -u >"$tmp/libc"
grep -v '^stag_' "$tmp/have" | comm -23 - "$tmp/libc" >"$tmp/unknown"
if [[ -s $tmp/unknown ]]; then
	echo "not in $libc:"
	cat "$tmp/unknown"
	exit 1
fi
