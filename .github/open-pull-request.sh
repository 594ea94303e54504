#!/bin/sh
# Commit what `make new-release` wrote to a branch of its own, and open a pull request
# with the summary as its text; a second run brings the same one up to date.
set -eu
summary=$1
branch=new-release

if [ -z "$(git status --porcelain -- releases.toml patches)" ]; then
    echo "nothing new"
    exit 0
fi
git config user.name "github-actions[bot]"
git config user.email "41898282+github-actions[bot]@users.noreply.github.com"
git checkout -q -B "$branch"
git add releases.toml patches
git commit -q -m "Port the releases that the package index has"
git push -q --force origin "$branch"
if gh pr view "$branch" --json state --jq .state 2>/dev/null | grep -qx OPEN; then
    gh pr edit "$branch" --body-file "$summary"
else
    gh pr create --head "$branch" --title "New vLLM releases" --body-file "$summary"
fi
