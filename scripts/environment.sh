# Sourced by the other scripts: makes .venv with the test and demo dependencies, again when they change.
# PYTHON names the interpreter that makes it (3.11 or newer).

# Two scripts that start at the same time would each clear what the other installs.
exec {environment_lock}>.venv.lock
if command -v flock >/dev/null; then flock "$environment_lock"; fi  # macOS has none
# The dependencies and the build system alone: a setting of a linter makes no other environment.
stamp=$({ sed -n '/^\[build-system\]/,/^\[tool\./p' pyproject.toml; cat requirements/no-deps.txt; } | sha256sum)
if [[ ! -x .venv/bin/python || "$(cat .venv/stamp 2>/dev/null)" != "$stamp" ]]; then
  echo "making .venv (torch and the IREE compiler: some minutes the first time)" >&2
  # `venv --clear` would empty the environment that it points to.
  if [[ -L .venv ]]; then echo ".venv is a link to an environment of other dependencies: remove it" >&2; exit 1; fi
  python=${PYTHON:-python3}
  # Debian's python3 may come without ensurepip; its pip can then fill an environment from outside.
  "$python" -m venv --clear .venv >/dev/null 2>&1 || {
    "$python" -m venv --clear --without-pip .venv
    "$python" -m pip --python .venv/bin/python install --quiet pip
  }
  .venv/bin/python -m pip install --quiet --editable ".[build,dev,xla]"
  .venv/bin/python -m pip install --quiet --no-deps --requirement requirements/no-deps.txt
  echo "$stamp" > .venv/stamp
fi
# pip compiles what it installs, but not what is installed as editable: where Python is told to write no
# bytecode, each of the many processes would compile it again.
.venv/bin/python -m compileall -q aotpipe
# What the script starts must not hold the lock after it.
exec {environment_lock}>&-
