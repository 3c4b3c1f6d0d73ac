#!/usr/bin/env bash
# Prints `-p PACKAGE` for each package of which a file differs from SINCE [default: the remote's
# main if there is one, or else the last commit], committed or not. All of them if a file that all
# share does.
set -euo pipefail
cd "$(dirname "$0")/.."
since=${1:-$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)}
{ git diff --name-only "$since"; git ls-files --others --exclude-standard; } | sort -u | while read -r file; do
	case $file in
	Cargo.toml | Cargo.lock | .cargo/*) echo "--workspace" ;;
	crates/*/* | lab/*/*)
		manifest=$(cut -d/ -f1,2 <<<"$file")/Cargo.toml
		if [ -f "$manifest" ]; then
			sed -n 's/^name = "\(.*\)"/-p \1/p;T;q' "$manifest"
		fi
		;;
	esac
done | sort -u | tr '\n' ' '
