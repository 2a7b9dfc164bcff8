"""A real browser, headless, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")


def browse(page: Path, profile: Path, *arguments: str) -> str:
    """Opens the page, with a profile folder of its own; what the browser prints."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    command = ["chromium", *flags, f"--user-data-dir={profile}", *arguments, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
