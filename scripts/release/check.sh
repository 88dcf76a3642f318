#!/usr/bin/env bash
# Everything of a release up to the upload: builds dist/, checks both files, and tries the wheel in a fresh virtual
# environment and an empty folder, as a user would.
set -euo pipefail
cd "$(dirname "$0")/../.."

rm -rf dist
python -m pip install --quiet build twine check-wheel-contents
python -m build
python -m twine check --strict dist/*
python -m check_wheel_contents dist/*.whl

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wheel=$(realpath dist/*.whl)
python -m venv "$scratch/venv"
source "$scratch/venv/bin/activate"
pip install --quiet "$wheel" mypy
cp tests/support/user_program.py "$scratch/program.py"
cd "$scratch"
clip-geometry doctor
python -m clip_geometry list measures > list.txt
clip-geometry embed local-dir:shipped/scenes-trained scenes -o scenes --limit 200
clip-geometry measure scenes
clip-geometry diagnose scenes --splits 4
clip-geometry run quickstart --smoke
mypy --strict program.py
python program.py
