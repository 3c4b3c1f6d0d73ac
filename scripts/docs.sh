#!/usr/bin/env bash
# The documentation site: docs.sh PROGRAM, the program being forebay-lab, which makes the page of the papers' figures.
#
# Every file of the repository that a document may link to is laid out as it is there, so that relative links lead somewhere.
set -euo pipefail

lab=$1
book=${CARGO_TARGET_DIR:-target}/docs

rm -rf "$book"
mkdir -p "$book/src"
git ls-files -z | xargs -0 cp --parents -t "$book/src"
cp docs/site/book.toml docs/site/site.css "$book"
# The summary stands where mdBook looks for it, and so do its links.
sed -E 's#\((\.\./){2}#(#; s#\(\.\./#(docs/#' docs/site/SUMMARY.md >"$book/src/SUMMARY.md"
# The page of all promises comes behind the text about them, which links to what prints it.
scripts/promises.py >"$book/src/docs/promises.md"
sed -i 's#(\.\./scripts/promises\.py)#(promises.md)#' "$book/src/docs/durability.md"
sed -i '/(docs\/durability\.md)/a - [Promises and their tests](docs/promises.md)' "$book/src/SUMMARY.md"
page=$book/src/docs/reproduction
"$lab" report docs/reproduction --markdown "$page/report.md"
# Its heading is the one of the text before it.
tail -n +2 "$page/report.md" >>"$page/README.md"
rm "$page/report.md"
# mdBook makes index.html of a README.md, and does not tell the links that lead to it.
git ls-files -z '*.md' | sed -z "s#^#$book/src/#" | xargs -0 sed -i -E 's#\]\(([^):]*)README\.md#](\1index.md#g'
mdbook build "$book"
scripts/site.py "$book/book"
echo "wrote $book/book/index.html"
